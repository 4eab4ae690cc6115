package store

import "context"

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	_, _, err := s.revisions(ctx)
	return err
}
