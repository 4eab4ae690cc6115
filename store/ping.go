package store

import "context"

// Ping returns an error if the database does not answer.
func (s *Store) Ping(ctx context.Context) error {
	_, _, err := s.revisions(ctx)
	return err
}
