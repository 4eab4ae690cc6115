package store

import "context"

// Ping returns an error if the database does not answer.
func (s *Store) Ping(ctx context.Context) error {
	_, _, err := s.revisions(ctx)
	return err
}

// countObjects reads the narrowest index of the table.
const countObjects = `SELECT count(*) FROM objects`

// Count returns how many objects there are. It reads an index of all of them.
func (s *Store) Count(ctx context.Context) (n int64, err error) {
	_, err = s.db.Row(ctx, countObjects, nil, &n)
	return n, err
}
