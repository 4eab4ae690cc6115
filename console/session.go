package console

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/internal/task"
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
// every replica knows them and a sign-out holds everywhere.
//
// A session is its credential: every request authenticates it again, so that the session
// ends, or has other groups, when the credential does. A row has the hash of the session's
// secret, and the credential, encrypted with a key that is derived from the secret: who
// reads the database can use neither. It is safe for concurrent use.
type Sessions struct {
	db           *sqldb.DB
	authenticate Authenticate
	now          func() time.Time
	log          *slog.Logger
}

// Authenticate returns the user of a credential as of now, or false if the credential is
// not valid (access.Control.Reauthenticate).
type Authenticate func(context.Context, access.Credential) (user.Info, bool)

// NewSessions returns the sessions of a database. It does no I/O.
func NewSessions(db *sqldb.DB, a Authenticate, log *slog.Logger) *Sessions {
	return &Sessions{db: db, authenticate: a, now: time.Now, log: log}
}

const (
	insertSession = `INSERT INTO console_sessions (id, link, user_name, client, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)`
	readLink      = `SELECT client FROM console_sessions WHERE id = $1 AND link AND expires_at > $2`
	readSession   = `SELECT client FROM console_sessions WHERE id = $1 AND NOT link AND expires_at > $2`
	useLink       = `DELETE FROM console_sessions WHERE id = $1 AND link AND expires_at > $2 RETURNING id`
	endSession    = `DELETE FROM console_sessions WHERE id = $1`
	sweepSessions = `DELETE FROM console_sessions WHERE expires_at <= $1`
	endOldest     = `DELETE FROM console_sessions WHERE user_name = $1 AND id NOT IN
		(SELECT id FROM console_sessions WHERE user_name = $2 ORDER BY created_at DESC, id LIMIT $3)`
)

// Link makes a one-time code for a credential. Begin takes it within a minute. Error:
// ErrNoSession, if the credential is not the user's.
func (s *Sessions) Link(ctx context.Context, c access.Credential, name string) (string, error) {
	u, ok := s.authenticate(ctx, c)
	if !ok || u.GetName() != name {
		return "", ErrNoSession
	}
	return s.add(ctx, c, u, true)
}

// New begins a session and returns its secret. Error: ErrNoSession, if the credential is
// not valid.
func (s *Sessions) New(ctx context.Context, c access.Credential) (secret string, u user.Info, err error) {
	u, ok := s.authenticate(ctx, c)
	if !ok {
		return "", nil, ErrNoSession
	}
	secret, err = s.add(ctx, c, u, false)
	return secret, u, err
}

func (s *Sessions) add(ctx context.Context, c access.Credential, u user.Info, link bool) (string, error) {
	secret := rand.Text()
	err := s.db.Transact(ctx, func(tx *sqldb.Tx) error { return s.insert(ctx, tx, secret, c, u, link) })
	if err != nil {
		return "", fmt.Errorf("begin a session: %w", err)
	}
	return secret, nil
}

func (s *Sessions) insert(ctx context.Context, tx *sqldb.Tx, secret string, c access.Credential, u user.Info, link bool) error {
	sealed, err := seal(secret, c)
	if err != nil {
		return err
	}
	now, lasts := s.now(), sessionFor
	if link {
		lasts = linkFor
	}
	var b sqldb.Batch
	b.Exec(insertSession, hash(secret), link, u.GetName(), sealed, now.UnixMilli(), now.Add(lasts).UnixMilli())
	b.Exec(endOldest, u.GetName(), u.GetName(), mostSessions)
	return tx.Send(ctx, &b)
}

// Begin exchanges a one-time code for a session. The code's row goes in the same
// transaction: of two browsers with one code, one gets ErrNoSession. Clients are not
// known here, so a wrong code costs a read and not the write lock.
func (s *Sessions) Begin(ctx context.Context, code string) (secret string, u user.Info, err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseWait)
	defer cancel()
	c, u, err := s.read(ctx, readLink, code)
	if err != nil {
		return "", nil, err
	}
	secret = rand.Text()
	err = s.db.Transact(ctx, func(tx *sqldb.Tx) error {
		used, err := sqldb.First(ctx, tx, []any{new(string)}, useLink, hash(code), s.now().UnixMilli())
		if err != nil {
			return err
		}
		if !used {
			return ErrNoSession
		}
		return s.insert(ctx, tx, secret, c, u, false)
	})
	return secret, u, err
}

// User returns the user of a session.
func (s *Sessions) User(ctx context.Context, secret string) (user.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseWait)
	defer cancel()
	_, u, err := s.read(ctx, readSession, secret)
	return u, err
}

// read returns the credential of a session or link, and its user as of now.
func (s *Sessions) read(ctx context.Context, statement, secret string) (c access.Credential, u user.Info, err error) {
	var sealed string
	found, err := s.db.Row(ctx, statement, []any{hash(secret), s.now().UnixMilli()}, &sealed)
	if err != nil {
		return c, nil, fmt.Errorf("read a session: %w", err)
	}
	if !found {
		return c, nil, ErrNoSession
	}
	if c, err = unseal(secret, sealed); err != nil {
		return c, nil, ErrNoSession // of an earlier version, or damaged
	}
	u, ok := s.authenticate(ctx, c)
	if !ok {
		return c, nil, ErrNoSession
	}
	return c, u, nil
}

// End ends a session. Ending a session that does not exist is not an error.
func (s *Sessions) End(ctx context.Context, secret string) error {
	return s.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, endSession, hash(secret)) })
}

// Run removes ended sessions until ctx ends.
func (s *Sessions) Run(ctx context.Context) error {
	for wait := time.Duration(0); task.Sleep(ctx, wait); wait = sweepEvery {
		err := s.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, sweepSessions, s.now().UnixMilli()) })
		if err != nil && ctx.Err() == nil {
			s.log.Warn("ended console sessions were not removed; the next sweep tries again", "error", err)
		}
	}
	return nil
}

// seal encrypts a credential for its row.
func seal(secret string, c access.Credential) (string, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	aead, err := cipherOf(secret)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(aead.Seal(nil, nil, data, nil)), nil
}

func unseal(secret, sealed string) (c access.Credential, err error) {
	data, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return c, err
	}
	aead, err := cipherOf(secret)
	if err != nil {
		return c, err
	}
	if data, err = aead.Open(nil, nil, data, nil); err != nil {
		return c, err
	}
	return c, json.Unmarshal(data, &c)
}

// cipherOf derives the key of a row. The row's id, a plain hash, does not give it away.
func cipherOf(secret string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "exeunt console session", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// hash is what is stored of a secret. Secrets have 128 random bits, so one round is
// enough.
func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
