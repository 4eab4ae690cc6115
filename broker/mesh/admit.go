package mesh

import (
	"errors"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

// validSecret is a node's own secret: 32 random bytes, in base64url.
var validSecret = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// validNonce is a string that is long enough to be unique if random.
var validNonce = regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}$`)

// checkEnrol refuses an invalid request. It does not check the token.
func checkEnrol(r v1alpha1.EnrolRequest) error {
	switch {
	case !validNonce.MatchString(r.Nonce):
		return invalid("nonce", "want 16 to 64 letters, digits, - and _")
	case !validSecret.MatchString(r.Secret):
		return invalid("secret", "want 32 random bytes in base64url, without padding")
	case r.DrainTimeoutSeconds < 0 || r.DrainTimeoutSeconds > int64(MaxDrainTimeout/time.Second):
		return invalid("drainTimeoutSeconds", "want 0 to %d, not %d", int64(MaxDrainTimeout/time.Second), r.DrainTimeoutSeconds)
	}
	if err := checkLabel("name", r.Name); err != nil {
		return err
	}
	if r.Project != "" {
		if err := checkLabel("project", r.Project); err != nil {
			return err
		}
	}
	return checkAddress(r.Address)
}

// checkAddress refuses an address that no peer could dial.
func checkAddress(address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || len(address) > 260 {
		return invalid("address", "%.80q is not HOST:PORT", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return invalid("address", "%.80q has no port from 1 to 65535", address)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return invalid("address", "%.80q stands for every address: say which one peers can reach", address)
	}
	return nil
}

// application holds all facts that decide whether a node is admitted, after the
// token's secret was checked.
type application struct {
	token   token
	request v1alpha1.EnrolRequest
	now     time.Time

	nonceOf   string // the token that was consumed with the request's nonce; empty means none
	node      *node  // the registered node that used the token; nil means none
	project   error  // why the project admits no nodes; nil means that it does
	nameTaken bool
}

// decision is the answer to an application.
type decision int

const (
	refuse  decision = iota // with a denial
	expire                  // with a denial; the token must be marked expired
	repeat                  // the same request was granted before
	welcome                 // consume the token and register the node
)

// admit decides. The first rule that applies counts; a refusal never consumes a
// token.
func admit(a application) (decision, *Denial) {
	if a.request.Project != "" && a.request.Project != a.token.project {
		return refuse, deny(v1alpha1.ReasonWrongProject, "the token is not for project %s", a.request.Project)
	}
	switch {
	case a.token.state == StateConsumed && a.repeats():
		return repeat, nil
	case a.token.state == StateConsumed && a.token.nonce == a.request.Nonce:
		return refuse, deny(v1alpha1.ReasonNonceReplayed, "the nonce was used by an earlier enrolment")
	case a.token.state == StateConsumed:
		return refuse, deny(v1alpha1.ReasonTokenConsumed, "node %s has enrolled by the token: a token lets in one node, once", a.token.node)
	case a.token.state == StateRevoked:
		return refuse, deny(v1alpha1.ReasonTokenRevoked, "the token was revoked at %s", stamp(a.token.endedAt))
	case a.token.state == StateExpired:
		return refuse, deny(v1alpha1.ReasonTokenExpired, "the token expired at %s", stamp(a.token.expiresAt))
	case a.token.over(a.now):
		return expire, deny(v1alpha1.ReasonTokenExpired, "the token expired at %s", stamp(a.token.expiresAt))
	case a.nonceOf != "":
		return refuse, deny(v1alpha1.ReasonNonceReplayed, "the nonce was used by an earlier enrolment")
	}
	var denial *Denial
	if errors.As(a.project, &denial) {
		return refuse, denial
	}
	if a.nameTaken {
		return refuse, deny(v1alpha1.ReasonNameTaken, "project %s has a node %s already", a.token.project, a.request.Name)
	}
	return welcome, nil
}

// repeats reports whether the request is the one that consumed the token: its
// answer may have been lost. A client that knows the token, the nonce and the
// node's secret learns nothing new from the answer.
func (a application) repeats() bool {
	return a.token.nonce == a.request.Nonce && a.node != nil && sameDigest(a.node.credential, a.request.Secret)
}

func stamp(ms int64) string { return when(ms).Format(time.RFC3339) }
