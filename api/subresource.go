package api

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/lifecycle"
)

// patchOnly is a subresource such as /status: it reads and changes an existing
// object and never creates one, even if the kind allows create on update.
type patchOnly struct{ *resource }

func (p *patchOnly) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	existing := *p.resource
	existing.strategy = neverCreate{p.strategy}
	return existing.Update(ctx, name, info, create, update, false, options)
}

type neverCreate struct{ lifecycle.Strategy }

func (neverCreate) AllowCreateOnUpdate(context.Context) bool { return false }
