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
	args := []any{key.Kind, key.Namespace, key.Name}
	found, err := s.db.Row(ctx, getHead, args, (*string)(&o.UID), &o.Revision)
	if err == nil && found {
		if o.Body = s.bodies.get(o.Revision); o.Body != nil {
			return o, nil
		}
		found, err = s.db.Row(ctx, getObject, args, (*string)(&o.UID), &o.Revision, &o.Body)
	}
	if err != nil {
		return object.Object{}, fmt.Errorf("get %s: %w", key, err)
	}
	if !found {
		return object.Object{}, notFound(key)
	}
	s.bodies.put(o.Revision, o.Body)
	return o, nil
}

func notFound(key object.Key) error {
	return object.Errorf(object.NotFound, "%s %q not found", key.Kind, key.Name)
}
