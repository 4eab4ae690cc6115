package mesh

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/sqldb"
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
	validTokenID     = regexp.MustCompile(`^[a-z2-7]{16}$`)
	validTokenSecret = regexp.MustCompile(`^[A-Z2-7]{26}$`)
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
