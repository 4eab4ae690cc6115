package repository

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/exeunt/exeunt/object"
	v1 "github.com/exeunt/exeunt/registry/v1"
)

// Public reports whether clients that have not logged in may pull from the repository of a
// path: spec.anonymousPull of its object, as it is now.
func (r *Repositories) Public(ctx context.Context, path string) (bool, error) {
	if !v1.ValidPath(path) {
		return false, nil
	}
	o, err := r.store.Get(ctx, r.key(v1.Name(path)))
	if object.Is(err, object.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Repository of %s: %w", path, err)
	}
	var body struct {
		Spec struct {
			Path          string `json:"path"`
			AnonymousPull bool   `json:"anonymousPull"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.Body, &body); err != nil {
		return false, fmt.Errorf("read Repository of %s: %w", path, err)
	}
	// The path differs if two paths have the same derived name.
	return body.Spec.AnonymousPull && body.Spec.Path == path, nil
}
