package api

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// TestCreateAgainStartsFromTheRequest: another Service took the address that the server had
// chosen. The next try begins with what the client sent, not with that address.
func TestCreateAgainStartsFromTheRequest(t *testing.T) {
	w := newWorld(t, store.Options{})
	for _, name := range []string{"web", ""} {
		tries := 0
		w.api.Kinds.Put(builtin.Services(func(_ context.Context, obj, _ runtime.Object) (kind.Attachment, error) {
			svc := obj.(*corev1.Service)
			if svc.Spec.ClusterIP != "" || svc.Spec.Ports[0].NodePort != 0 {
				t.Errorf("try %d begins with %+v", tries, svc.Spec)
			}
			svc.Spec.ClusterIP, svc.Spec.Ports[0].NodePort = "10.0.0.1", 30001
			if tries++; tries < 3 {
				return kind.Attachment{}, object.ErrAgain
			}
			return kind.Attachment{}, nil
		}))
		r := w.want(201, "POST", "/api/v1/namespaces/shop/services", `{"metadata":{"name":"`+name+`","generateName":"g"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
		if tries != 3 || r.get("spec.ports.0.nodePort") != "30001" || r.get("metadata.uid") == "" {
			t.Errorf("after %d tries: %s", tries, r.body)
		}
	}
}

// TestAttachWarns: what Kind.Attach warns about reaches the client of a create and of an update.
func TestAttachWarns(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.api.Kinds.Put(builtin.Services(func(_ context.Context, _, old runtime.Object) (kind.Attachment, error) {
		if old == nil {
			return kind.Attachment{Warnings: []string{"it is new"}}, nil
		}
		return kind.Attachment{Warnings: []string{"it has changed"}}, nil
	}))
	const all = "/api/v1/namespaces/shop/services"
	for _, r := range []struct {
		code                           int
		method, path, body, wantHeader string
	}{
		{201, "POST", all, `{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`, `299 - "it is new"`},
		{200, "PUT", all + "/web", `{"metadata":{"name":"web","labels":{"a":"b"}},"spec":{"ports":[{"port":80}]}}`, `299 - "it has changed"`},
	} {
		if got := w.want(r.code, r.method, r.path, r.body).header.Get("Warning"); got != r.wantHeader {
			t.Errorf("%s warns %q", r.method, got)
		}
	}
}
