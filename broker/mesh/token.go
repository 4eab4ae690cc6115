package mesh

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/internal/pattern"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// The states of a token. All but the first are final.
const (
	StateIssued   = "issued"
	StateConsumed = "consumed"
	StateExpired  = "expired"
	StateRevoked  = "revoked"
)

// The limits of a token's lifetime.
const (
	MinTTL = 5 * time.Minute
	MaxTTL = 24 * time.Hour
)

// The text of a token is exb_ID_SECRET. The id is public: it finds the row, so
// that one attempt costs one hash, and it names the token in lists and logs.
// The secret has 130 random bits.
const (
	tokenPrefix  = "exb_"
	tokenIDSize  = 16
	secretSize   = 26 // characters of rand.Text
	maxTokenText = 100
)

var (
	validTokenID     = pattern.New(`^[a-z2-7]{16}$`)
	validTokenSecret = pattern.New(`^[A-Z2-7]{26}$`)
)

// newToken makes a random id and secret.
func newToken() (id, secret string) {
	return strings.ToLower(rand.Text()[:tokenIDSize]), rand.Text()[:secretSize]
}

// digest is the stored form of a node's secret, which has 256 random bits: a fast hash is enough.
func digest(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// sameDigest compares in constant time.
func sameDigest(stored []byte, secret string) bool {
	return subtle.ConstantTimeCompare(stored, digest(secret)) == 1
}

// hashOf is the stored form of a token's secret, which has 130 random bits.
func hashOf(secret string) string { return hex.EncodeToString(digest(secret)) }

func hashMatches(stored, secret string) bool {
	if strings.HasPrefix(stored, "$argon2id$") {
		return argon2Matches(stored, secret)
	}
	key, err := hex.DecodeString(stored)
	return err == nil && sameDigest(key, secret)
}

// argon2Turn admits one hash at a time: each takes 19 MiB.
var argon2Turn sync.Mutex

// argon2Matches checks a token that an earlier version of this server issued. Such a token
// lives for MaxTTL at most.
func argon2Matches(stored, secret string) bool {
	parts := strings.Split(stored, "$") // "", argon2id, v=19, m=19456,t=2,p=1, salt, key
	if len(parts) != 6 {
		return false
	}
	salt, _ := base64.RawStdEncoding.DecodeString(parts[4])
	key, _ := base64.RawStdEncoding.DecodeString(parts[5])
	argon2Turn.Lock()
	defer argon2Turn.Unlock()
	return subtle.ConstantTimeCompare(key, argon2.IDKey([]byte(secret), salt, 2, 19*1024, 1, 32)) == 1
}

func tokenText(id, secret string) string { return tokenPrefix + id + "_" + secret }

// parseToken parses the text of a token. A text of another form is certainly
// not a token, so the refusal may say so.
func parseToken(text string) (id, secret string, ok bool) {
	if len(text) > maxTokenText {
		return "", "", false
	}
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	return id, secret, ok && validTokenID().MatchString(id) && validTokenSecret().MatchString(secret)
}

// token is a row of bootstrap_tokens. Times are Unix milliseconds.
type token struct {
	id, project, resource, hash, state string
	createdAt                          int64
	createdBy                          string
	expiresAt, endedAt                 int64
	nonce, node                        string
	leftAt                             int64
	leftHow                            string
}

// over reports whether a token that is still issued has passed its expiry time.
func (t *token) over(now time.Time) bool {
	return t.state == StateIssued && now.UnixMilli() >= t.expiresAt
}

// scan reads tokenColumns.
func (t *token) scan(row sqldb.Row) error {
	return row.Scan(&t.id, &t.project, &t.resource, &t.hash, &t.state, &t.createdAt, &t.createdBy,
		&t.expiresAt, &t.endedAt, &t.nonce, &t.node, &t.leftAt, &t.leftHow)
}

// shown converts the token to its API form.
func (t *token) shown(now time.Time) v1alpha1.Token {
	out := v1alpha1.Token{
		ID: t.id, Project: t.project, State: t.state, ProvisionedResource: t.resource,
		CreatedAt: when(t.createdAt), CreatedBy: t.createdBy, ExpiresAt: when(t.expiresAt),
		Node: t.node, LeftHow: t.leftHow,
	}
	if t.over(now) {
		out.State = StateExpired
	}
	if t.endedAt != 0 {
		at := when(t.endedAt)
		out.EndedAt = &at
	}
	if t.leftAt != 0 {
		at := when(t.leftAt)
		out.LeftAt = &at
	}
	return out
}

func when(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// keepTokens is how long an ended token stays in lists.
const keepTokens = 7 * 24 * time.Hour

// Order is a request for a token.
type Order struct {
	Project string
	// Resource is the provisioned resource that the token is for. Empty means that the
	// token is for a person.
	Resource string
	TTL      time.Duration
	// Actor is the user who asks.
	Actor string
}

// Mint makes a token. The result carries its text, which cannot be read again.
//
// A resource has at most one usable token: Mint revokes the earlier ones in the
// same transaction. Mint refuses while a node that used one of them is
// registered: the token's id is the only handle on that node.
//
// Denials: BadRequest, ProjectGone, NodeRegistered.
func (m *Mesh) Mint(ctx context.Context, o Order) (v1alpha1.Token, error) {
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return v1alpha1.Token{}, invalid("ttlSeconds", "a token lives from %s to %s, not %s", MinTTL, MaxTTL, o.TTL)
	}
	if err := checkLabel("project", o.Project); err != nil {
		return v1alpha1.Token{}, err
	}
	id, secret := newToken()
	now := m.opts.Now()
	t := token{
		id: id, project: o.Project, resource: o.Resource, hash: hashOf(secret), state: StateIssued,
		createdAt: now.UnixMilli(), createdBy: o.Actor, expiresAt: now.Add(o.TTL).UnixMilli(),
	}
	err := m.store.Transact(ctx, func(tx *store.Tx) error { return m.mint(ctx, tx, &t) })
	if err != nil {
		return v1alpha1.Token{}, fmt.Errorf("mint token: %w", err)
	}
	out := t.shown(now)
	out.Text = tokenText(id, secret)
	return out, nil
}

// mint checks and writes. The transaction holds the lock on the revision, as
// every write of a token does, so its reads stay true.
func (m *Mesh) mint(ctx context.Context, tx *store.Tx, t *token) error {
	if err := checkProject(ctx, tx, t.project); err != nil {
		return err
	}
	var b sqldb.Batch
	if t.resource != "" {
		var holder string
		b.Query(func(row sqldb.Row) error { return row.Scan(&holder) }, nodeOfResource, t.resource)
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		if holder != "" {
			return deny(v1alpha1.ReasonNodeRegistered, "node %s, which used an earlier token of %s, is still registered; delete its MeshNode first", holder, t.resource)
		}
		b = sqldb.Batch{}
		b.Exec(revokeOfResource, t.resource, t.createdAt)
	}
	b.Exec(pruneTokens, t.project, when(t.createdAt).Add(-keepTokens).UnixMilli())
	b.Exec(insertToken, t.id, t.project, t.resource, t.hash, t.createdAt, t.createdBy, t.expiresAt)
	return tx.Send(ctx, &b)
}

// TokenState is the state of a token; empty means not found. It marks an overdue
// token as expired before it returns, so the token cannot be consumed
// afterwards, whatever any clock says.
func (m *Mesh) TokenState(ctx context.Context, id string) (string, error) {
	t, err := m.token(ctx, id)
	if err != nil || t == nil {
		return "", err
	}
	if !t.over(m.opts.Now()) {
		return t.state, nil
	}
	return m.end(ctx, id, StateExpired)
}

// Revoke makes an issued token worthless, and returns the token as it is then.
// Denial: NotFound.
func (m *Mesh) Revoke(ctx context.Context, id string) (v1alpha1.Token, error) {
	if _, err := m.end(ctx, id, StateRevoked); err != nil {
		return v1alpha1.Token{}, err
	}
	t, err := m.token(ctx, id)
	if err == nil && t == nil {
		err = deny(reasonNotFound, "there is no token %q", id)
	}
	if err != nil {
		return v1alpha1.Token{}, err
	}
	return t.shown(m.opts.Now()), nil
}

// end gives an issued token a final state, and returns the state that it has
// then; empty means not found.
func (m *Mesh) end(ctx context.Context, id, state string) (got string, err error) {
	err = m.store.Transact(ctx, func(tx *store.Tx) error {
		got = ""
		var b sqldb.Batch
		b.Exec(endToken, id, state, m.opts.Now().UnixMilli())
		b.Query(func(row sqldb.Row) error { return row.Scan(&got) }, stateOfToken, id)
		return tx.Send(ctx, &b)
	})
	if err != nil {
		return "", fmt.Errorf("mark token %s as %s: %w", id, state, err)
	}
	return got, nil
}

// token reads a token. It returns nil if there is none.
func (m *Mesh) token(ctx context.Context, id string) (t *token, err error) {
	if err := sqldb.Each(ctx, m.db, func(row sqldb.Row) error {
		t = new(token)
		return t.scan(row)
	}, tokenByID, id); err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	return t, nil
}

// maxTokens is the maximum length of a list.
const maxTokens = 1000

// Tokens lists the tokens of a project, or of all projects, the newest first.
func (m *Mesh) Tokens(ctx context.Context, project string) (v1alpha1.TokenList, error) {
	list := v1alpha1.TokenList{Items: []v1alpha1.Token{}}
	now := m.opts.Now()
	if err := sqldb.Each(ctx, m.db, func(row sqldb.Row) error {
		var t token
		err := t.scan(row)
		list.Items = append(list.Items, t.shown(now))
		return err
	}, tokensOf, project, maxTokens); err != nil {
		return list, fmt.Errorf("list tokens: %w", err)
	}
	return list, nil
}
