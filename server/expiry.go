package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/deletion/expiry"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

func (s *server) addExpiry(context.Context) error {
	e, err := expiry.New(s.db, s.store, expiry.Options{Logger: s.config.Logger, Kinds: s.kinds, Delete: s.deleteExpired})
	if err != nil {
		return err
	}
	kinds, err := expiry.Kinds()
	if err != nil {
		return err
	}
	s.add(part{name: "expiry", kinds: append(kinds, e.PreviewKind()), queues: e.Engines(), tasks: []task.Task{
		{Name: "expiry", Run: e.Engines()[0].Run}, {Name: "expiry-policies", Run: e.Engines()[1].Run},
	}})
	return nil
}

// deleteExpired is expiry.Options.Delete: a request to the API of this process. The rights are those of the ClusterRole
// system:exeunt:expiry (access/policy).
func (s *server) deleteExpired(ctx context.Context, name string, o object.Object, options metav1.DeleteOptions) error {
	k, ok := s.kinds.Snapshot().Stored(o.Kind)
	if !ok || len(k.Versions) == 0 {
		return fmt.Errorf("its kind %s is not served", o.Kind)
	}
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	client := &user.DefaultInfo{Name: name, Groups: []string{expiry.User, user.AllAuthenticated}}
	path := kind.ObjectsPath(k.Versions[0].GVK.GroupVersion(), o.Namespace, k.Plural) + "/" + o.Name
	_, err = access.Ask(access.WithClient(ctx, client), s.api, http.MethodDelete, path, body, func(req *http.Request) {
		req.Header.Set("Audit-Id", uuid.NewString())
		req.Header.Set("User-Agent", "exeunt-expiry")
	})
	switch {
	case apierrors.IsNotFound(err):
		return object.Errorf(object.NotFound, "%s", err)
	case apierrors.IsConflict(err):
		return object.Errorf(object.Conflict, "%s", err)
	}
	return err
}
