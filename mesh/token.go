package mesh

import (
	"crypto/rand"
	"regexp"
	"strings"
	"time"

	"github.com/exeunt/exeunt/mesh/v1alpha1"
	"github.com/exeunt/exeunt/sqldb"
)

// The states of a token. All but the first are final.
const (
	StateIssued   = "issued"
	StateConsumed = "consumed"
	StateExpired  = "expired"
	StateRevoked  = "revoked"
)

// The bounds of a token's life.
const (
	MinTTL = 5 * time.Minute
	MaxTTL = 24 * time.Hour
)

// The text of a token is exb_ID_SECRET. The id is public: it finds the row, so
// that one hash is computed for one attempt, and it names the token in lists
// and logs. The secret is 130 bits of chance.
const (
	tokenPrefix  = "exb_"
	tokenIDSize  = 16
	secretSize   = 26 // of rand.Text
	maxTokenText = 100
)

var (
	validTokenID     = regexp.MustCompile(`^[a-z2-7]{16}$`)
	validTokenSecret = regexp.MustCompile(`^[A-Z2-7]{26}$`)
)

// newToken draws an id and a secret.
func newToken() (id, secret string) {
	return strings.ToLower(rand.Text()[:tokenIDSize]), rand.Text()[:secretSize]
}

func tokenText(id, secret string) string { return tokenPrefix + id + "_" + secret }

// parseToken reads the text of a token. What is no token cannot be one of ours:
// that much may be said.
func parseToken(text string) (id, secret string, ok bool) {
	if len(text) > maxTokenText {
		return "", "", false
	}
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	return id, secret, ok && validTokenID.MatchString(id) && validTokenSecret.MatchString(secret)
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

// over says whether the time of a token that is still issued has passed.
func (t *token) over(now time.Time) bool {
	return t.state == StateIssued && now.UnixMilli() >= t.expiresAt
}

// scan reads tokenColumns.
func (t *token) scan(row sqldb.Row) error {
	return row.Scan(&t.id, &t.project, &t.resource, &t.hash, &t.state, &t.createdAt, &t.createdBy,
		&t.expiresAt, &t.endedAt, &t.nonce, &t.node, &t.leftAt, &t.leftHow)
}

// shown is the token as people see it.
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
