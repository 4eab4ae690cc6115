package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/internal/pattern"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Enrol admits a node: it consumes the token and registers node and object, in
// one transaction, or does nothing. It is idempotent while the node is
// registered.
//
// Denials: BadRequest, and all of v1alpha1's that concern a
// token, nonce, project or name.
func (m *Mesh) Enrol(ctx context.Context, r v1alpha1.EnrolRequest) (v1alpha1.EnrolAnswer, error) {
	if err := checkEnrol(r); err != nil {
		return v1alpha1.EnrolAnswer{}, err
	}
	id, err := m.prove(ctx, r.Token)
	if err != nil {
		return v1alpha1.EnrolAnswer{}, err
	}
	var n node
	var denial *Denial
	err = m.store.Transact(ctx, func(tx *store.Tx) error {
		var err error
		n, denial, err = m.enrol(ctx, tx, id, r)
		return err
	})
	if err != nil {
		return v1alpha1.EnrolAnswer{}, fmt.Errorf("enrol: %w", err)
	}
	if denial != nil {
		m.opts.Logger.Warn("enrolment refused", "token", id, "name", r.Name, "reason", denial.Reason)
		return v1alpha1.EnrolAnswer{}, denial
	}
	return v1alpha1.EnrolAnswer{UID: n.uid, Project: n.project, Name: n.name, HeartbeatSeconds: seconds(m.opts.Heartbeat)}, nil
}

// prove checks the secret of a token and returns the token's id. An unknown
// token gets the same refusal as a wrong secret.
func (m *Mesh) prove(ctx context.Context, text string) (id string, err error) {
	id, secret, ok := parseToken(text)
	if !ok {
		return "", errUnknownToken
	}
	t, err := m.token(ctx, id)
	if err != nil {
		return "", err
	}
	if t == nil || !hashMatches(t.hash, secret) {
		m.opts.Logger.Warn("enrolment refused", "token", id, "reason", v1alpha1.ReasonUnknownToken)
		return "", errUnknownToken
	}
	return id, nil
}

// enrol reads the facts for admit and carries out its decision. The transaction
// holds the lock on the revision: of two enrolments with one token, or an
// enrolment and a revocation, the second sees the result of the first.
func (m *Mesh) enrol(ctx context.Context, tx *store.Tx, id string, r v1alpha1.EnrolRequest) (node, *Denial, error) {
	a, err := m.application(ctx, tx, id, r)
	if err != nil {
		return node{}, nil, err
	}
	what, denial := admit(a)
	switch what {
	case repeat:
		return *a.node, nil, nil
	case welcome:
		return m.register(ctx, tx, a)
	case expire:
		var b sqldb.Batch
		b.Exec(endToken, id, StateExpired, a.now.UnixMilli())
		err = tx.Send(ctx, &b)
	}
	return node{}, denial, err
}

func (m *Mesh) application(ctx context.Context, tx *store.Tx, id string, r v1alpha1.EnrolRequest) (application, error) {
	a := application{request: r, now: m.opts.Now()}
	var b sqldb.Batch
	b.Query(a.token.scan, tokenByID, id)
	b.Query(func(row sqldb.Row) error { return row.Scan(&a.nonceOf) }, tokenOfNonce, r.Nonce)
	b.Query(func(row sqldb.Row) error {
		a.node = new(node)
		return a.node.scan(row)
	}, nodeByToken, id)
	if err := tx.Send(ctx, &b); err != nil {
		return a, err
	}
	if a.token.id == "" { // deleted with its project after its secret was checked
		a.token = token{id: id, project: r.Project, state: StateRevoked, endedAt: a.now.UnixMilli()}
	}
	var err error
	if a.nameTaken, _, err = taken(ctx, tx, storage, a.token.project, r.Name); err != nil {
		return a, err
	}
	a.project = checkProject(ctx, tx, a.token.project)
	if d := (*Denial)(nil); a.project != nil && !errors.As(a.project, &d) {
		return a, a.project
	}
	return a, nil
}

// register consumes the token and writes the node, its object and its first
// review. It refuses, and writes nothing, if the token is no longer issued: one
// token never admits two nodes, whatever admit has decided.
func (m *Mesh) register(ctx context.Context, tx *store.Tx, a application) (node, *Denial, error) {
	n := node{
		uid: string(object.NewUID()), project: a.token.project, name: a.request.Name, token: a.token.id,
		credential: digest(a.request.Secret), enrolledAt: a.now.UnixMilli(), lastSeen: a.now.UnixMilli(), ready: true,
	}
	drain := time.Duration(a.request.DrainTimeoutSeconds) * time.Second
	drain = cmp.Or(drain, m.opts.DrainTimeout)
	consumed, err := consume(ctx, tx, n, a.request.Nonce)
	switch {
	case err != nil:
		return node{}, nil, err
	case !consumed:
		return node{}, errTokenEnded, nil
	}
	var b sqldb.Batch
	b.Exec(insertNode, n.uid, n.project, n.name, n.token, n.credential, n.enrolledAt, n.ready)
	m.engine.Enqueue(&b, n.uid, "enrolled", a.now.Add(m.opts.UnreachableAfter))
	if err := tx.Send(ctx, &b); err != nil {
		return node{}, nil, err
	}
	if err := createObject(tx, n, v1alpha1.MeshNodeSpec{
		TokenID: n.token, ProvisionedResource: a.token.resource,
		Address: a.request.Address, DrainTimeoutSeconds: seconds(drain),
	}); err != nil {
		return node{}, nil, err
	}
	m.opts.Logger.Info("node enrolled", "project", n.project, "name", n.name, "token", n.token)
	return n, nil, nil
}

// consume marks the token consumed, and reports whether it was still issued.
func consume(ctx context.Context, tx *store.Tx, n node, nonce string) (consumed bool, err error) {
	var b sqldb.Batch
	b.Found(&consumed, consumeToken, n.token, n.enrolledAt, nonce, n.name)
	err = tx.Send(ctx, &b) // sets consumed
	return consumed, err
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// validSecret is a node's own secret: 32 random bytes, in base64url.
var validSecret = pattern.New(`^[A-Za-z0-9_-]{43}$`)

// validNonce is a string that is long enough to be unique if random.
var validNonce = pattern.New(`^[A-Za-z0-9_-]{16,64}$`)

// checkEnrol refuses an invalid request. It does not check the token.
func checkEnrol(r v1alpha1.EnrolRequest) error {
	switch {
	case !validNonce().MatchString(r.Nonce):
		return invalid("nonce", "want 16 to 64 letters, digits, - and _")
	case !validSecret().MatchString(r.Secret):
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
