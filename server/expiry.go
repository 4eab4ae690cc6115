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
	"github.com/exeunt/exeunt/review"
)

// expiryUser deletes what expires. Its rights are a ClusterRole of the same name (access/policy).
const expiryUser = "system:exeunt:expiry"

func (s *server) addExpiry(context.Context) error {
	e, err := expiry.New(s.db, s.store, expiry.Options{Logger: s.config.Logger, Delete: s.deleteExpired})
	if err != nil {
		return err
	}
	s.add(part{name: "expiry", queues: []*review.Engine{e.Engine()}, tasks: []task.Task{{Name: "expiry", Run: e.Run}}})
	return nil
}

// deleteExpired is expiry.Options.Delete: a request to the API of this process.
func (s *server) deleteExpired(ctx context.Context, o object.Object, options metav1.DeleteOptions) error {
	k, ok := s.kinds.Snapshot().Stored(o.Kind)
	if !ok || len(k.Versions) == 0 {
		return fmt.Errorf("its kind %s is not served", o.Kind)
	}
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	client := &user.DefaultInfo{Name: expiryUser, Groups: []string{user.AllAuthenticated}}
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
