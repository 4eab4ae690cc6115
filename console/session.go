package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/sqldb"
)

const (
	// linkFor is how long a one-time link can be used.
	linkFor = time.Minute
	// sessionFor is how long a session lasts.
	sessionFor = 12 * time.Hour
	// sweepEvery is how often ended sessions are removed.
	sweepEvery = 10 * time.Minute
	// databaseWait bounds what a request waits for the database. Requests of the page
	// may be watches, which have no deadline.
	databaseWait = 10 * time.Second
	// mostSessions bounds the sessions and links of one user: the oldest end first.
	mostSessions = 50
)

// ErrNoSession means that a session or link does not exist, has ended, or was used.
var ErrNoSession = errors.New("no such session")

// Sessions are the browsers that are signed in. They are in the database, so that
// every replica knows them and a sign-out holds everywhere. Only hashes of the secrets
// are stored. It is safe for concurrent use.
type Sessions struct {
	db    *sqldb.DB
	users Users
	now   func() time.Time
	log   *slog.Logger
}

// Users is who may have a session (access.Door).
type Users interface {
	// Remember returns a user as a session keeps it.
	Remember(user.Info) user.Info
	// Current returns a remembered user as it is now; false: it was removed, and its
	// sessions have ended.
	Current(user.Info) (user.Info, bool)
}

// NewSessions returns the sessions of a database. It does no I/O.
func NewSessions(db *sqldb.DB, users Users, log *slog.Logger) *Sessions {
	return &Sessions{db: db, users: users, now: time.Now, log: log}
}

const (
	insertSession = `INSERT INTO console_sessions (id, link, user_name, client, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)`
	readLink      = `SELECT client FROM console_sessions WHERE id = $1 AND link AND expires_at > $2`
	readSession   = `SELECT client FROM console_sessions WHERE id = $1 AND NOT link AND expires_at > $2`
	useLink       = `DELETE FROM console_sessions WHERE id = $1 AND link AND expires_at > $2 RETURNING client`
	endSession    = `DELETE FROM console_sessions WHERE id = $1`
	sweepSessions = `DELETE FROM console_sessions WHERE expires_at <= $1`
	endOldest     = `DELETE FROM console_sessions WHERE user_name = $1 AND id NOT IN
		(SELECT id FROM console_sessions WHERE user_name = $2 ORDER BY created_at DESC, id LIMIT $3)`
)

// client is a user as a row stores it.
type client struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

func (c client) info() user.Info {
	return &user.DefaultInfo{Name: c.Name, UID: c.UID, Groups: c.Groups, Extra: c.Extra}
}

// Link makes a one-time code for a user. Begin takes it within a minute.
func (s *Sessions) Link(ctx context.Context, u user.Info) (string, error) {
	return s.add(ctx, s.users.Remember(u), true, linkFor)
}

// New begins a session of a user and returns its secret. It ends when the credential ends
// that the user signed in with (zero: never), or earlier.
func (s *Sessions) New(ctx context.Context, u user.Info, expires time.Time) (string, error) {
	lasts := sessionFor
	if left := expires.Sub(s.now()); !expires.IsZero() && left < lasts {
		lasts = left
	}
	return s.add(ctx, s.users.Remember(u), false, lasts)
}

func (s *Sessions) add(ctx context.Context, u user.Info, link bool, lasts time.Duration) (string, error) {
	secret := rand.Text()
	err := s.db.Write(ctx, func(tx *sql.Tx) error { return s.insert(ctx, tx, secret, u, link, lasts) })
	if err != nil {
		return "", fmt.Errorf("begin a session: %w", err)
	}
	return secret, nil
}

func (s *Sessions) insert(ctx context.Context, tx *sql.Tx, secret string, u user.Info, link bool, lasts time.Duration) error {
	data, err := json.Marshal(client{u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()})
	if err != nil {
		return err
	}
	now := s.now()
	if _, err := tx.ExecContext(ctx, insertSession, hash(secret), link, u.GetName(), string(data), now.UnixMilli(), now.Add(lasts).UnixMilli()); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, endOldest, u.GetName(), u.GetName(), mostSessions)
	return err
}

// Begin exchanges a one-time code for a session. The code's row goes in the same
// transaction: of two browsers with one code, one gets ErrNoSession. Clients are not
// known here, so a wrong code costs a read and not the write lock.
func (s *Sessions) Begin(ctx context.Context, code string) (secret string, u user.Info, err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseWait)
	defer cancel()
	var link string
	found, err := s.db.Row(ctx, readLink, []any{hash(code), s.now().UnixMilli()}, &link)
	if err != nil {
		return "", nil, fmt.Errorf("read a link: %w", err)
	}
	if !found {
		return "", nil, ErrNoSession
	}
	secret = rand.Text()
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		var data string
		if err := tx.QueryRowContext(ctx, useLink, hash(code), s.now().UnixMilli()).Scan(&data); err != nil {
			return err
		}
		if u, err = parse(data); err != nil {
			return err
		}
		return s.insert(ctx, tx, secret, u, false, sessionFor)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil, ErrNoSession
	}
	return secret, u, err
}

// User returns the user of a session.
func (s *Sessions) User(ctx context.Context, secret string) (user.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseWait)
	defer cancel()
	var data string
	found, err := s.db.Row(ctx, readSession, []any{hash(secret), s.now().UnixMilli()}, &data)
	if err != nil {
		return nil, fmt.Errorf("read a session: %w", err)
	}
	if !found {
		return nil, ErrNoSession
	}
	u, err := parse(data)
	if err != nil {
		return nil, err
	}
	current, ok := s.users.Current(u)
	if !ok {
		return nil, ErrNoSession
	}
	return current, nil
}

// End ends a session. Ending a session that does not exist is not an error.
func (s *Sessions) End(ctx context.Context, secret string) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, endSession, hash(secret))
		return err
	})
}

// Run removes ended sessions until ctx ends.
func (s *Sessions) Run(ctx context.Context) error {
	for {
		err := s.db.Write(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, sweepSessions, s.now().UnixMilli())
			return err
		})
		if err != nil && ctx.Err() == nil {
			s.log.Warn("ended console sessions were not removed; the next sweep tries again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(sweepEvery):
		}
	}
}

func parse(data string) (user.Info, error) {
	var c client
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return nil, fmt.Errorf("a session's user cannot be read: %w", err)
	}
	return c.info(), nil
}

// hash is what is stored of a secret. Secrets have 128 random bits, so one round is
// enough.
func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
