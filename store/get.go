package store

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

// Get reads the newest state of an object. Error: NotFound.
func (s *Store) Get(ctx context.Context, key object.Key) (object.Object, error) {
	if err := checkKey(key); err != nil {
		return object.Object{}, err
	}
	if s.headReads == nil { // no other process writes
		if o, known := s.recent(key); known {
			return o, nil
		}
	}
	return s.read(ctx, key)
}

// Cache has a state that was read in memory for the request that reads it next.
func (s *Store) Cache(o object.Object) { s.bodies.put(o.Revision, o.Body) }

// Recent returns the newest state of an object that this process knows, where Get would ask the
// database: on PostgreSQL, where another replica may have changed or removed the object. Decide with
// it only what an update with its revision confirms (UpdateRequest.IfRevision).
func (s *Store) Recent(key object.Key) (o object.Object, known bool) {
	if s.headReads == nil {
		return o, false
	}
	return s.recent(key)
}

func (s *Store) recent(key object.Key) (o object.Object, known bool) {
	h, known := s.heads.get(key)
	if !known {
		return o, false
	}
	body := s.bodies.get(h.revision)
	return object.Object{Key: key, UID: types.UID(h.uid), Revision: h.revision, Body: body}, body != nil
}

// read reads the head from the database, and the body if it is not cached.
func (s *Store) read(ctx context.Context, key object.Key) (object.Object, error) {
	epoch := s.heads.now()
	o := object.Object{Key: key}
	args := []any{key.Kind, key.Namespace, key.Name}
	h, found, err := s.readHead(ctx, key)
	o.UID, o.Revision = types.UID(h.uid), h.revision
	if err == nil && found {
		if o.Body = s.bodies.get(o.Revision); o.Body == nil {
			found, err = s.db.Row(ctx, getObject, args, (*string)(&o.UID), &o.Revision, &o.Body)
			if err == nil && found {
				err = s.opts.Keys.Unseal(&o)
			}
		}
	}
	if err != nil {
		return object.Object{}, fmt.Errorf("get %s: %w", key, err)
	}
	if !found {
		return object.Object{}, notFound(key)
	}
	s.bodies.put(o.Revision, o.Body)
	s.heads.keep(key, head{string(o.UID), o.Revision}, epoch)
	return o, nil
}

func (s *Store) readHead(ctx context.Context, key object.Key) (h head, found bool, err error) {
	if s.headReads != nil {
		return s.headReads.get(ctx, key)
	}
	return readHead(ctx, s.db, key)
}

func notFound(key object.Key) error {
	return object.Errorf(object.NotFound, "%s %q not found", key.Kind, key.Name)
}
