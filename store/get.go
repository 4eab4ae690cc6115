package store

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/object"
)

// Get reads an object as it is now. Error: NotFound.
func (s *Store) Get(ctx context.Context, key object.Key) (object.Object, error) {
	if err := checkKey(key); err != nil {
		return object.Object{}, err
	}
	o := object.Object{Key: key}
	found, err := s.db.Row(ctx, getObject, []any{key.Kind, key.Namespace, key.Name}, (*string)(&o.UID), &o.Revision, &o.Body)
	if err != nil {
		return object.Object{}, fmt.Errorf("get %s: %w", key, err)
	}
	if !found {
		return object.Object{}, notFound(key)
	}
	return o, nil
}

func notFound(key object.Key) error {
	return object.Errorf(object.NotFound, "%s %q not found", key.Kind, key.Name)
}
