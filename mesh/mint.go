package mesh

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/mesh/v1alpha1"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// keepTokens is how long a token that is over stays in lists.
const keepTokens = 7 * 24 * time.Hour

// Order asks for a token.
type Order struct {
	Project string
	// Resource is the provisioned resource that the token is for. Empty: it is a
	// person's.
	Resource string
	TTL      time.Duration
	// Actor is who asks.
	Actor string
}

// Mint makes a token. The result carries its text, which nobody can read again.
//
// For a resource there is at most one token that can be used: the ones before
// it are revoked in the same transaction. Mint refuses while a node that came by
// one of them is registered: the caller was about to lose its handle on it.
//
// Denials: BadRequest, ProjectGone, NodeRegistered, TooManyRequests.
func (m *Mesh) Mint(ctx context.Context, o Order) (v1alpha1.Token, error) {
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return v1alpha1.Token{}, invalid("ttlSeconds", "a token lives from %s to %s, not %s", MinTTL, MaxTTL, o.TTL)
	}
	if err := checkLabel("project", o.Project); err != nil {
		return v1alpha1.Token{}, err
	}
	id, secret := newToken()
	// The hash takes long: it is made before the transaction.
	hash, err := m.hasher.hash(ctx, secret)
	if err != nil {
		return v1alpha1.Token{}, err
	}
	now := m.opts.Now()
	t := token{
		id: id, project: o.Project, resource: o.Resource, hash: hash, state: StateIssued,
		createdAt: now.UnixMilli(), createdBy: o.Actor, expiresAt: now.Add(o.TTL).UnixMilli(),
	}
	err = m.store.Transact(ctx, func(tx *store.Tx) error { return m.mint(ctx, tx, &t) })
	if err != nil {
		return v1alpha1.Token{}, fmt.Errorf("mint token: %w", err)
	}
	out := t.shown(now)
	out.Text = tokenText(id, secret)
	return out, nil
}

// mint checks and writes. The transaction has the lock on the revision, which
// every write of a token takes: what it reads stays true.
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
			return deny(v1alpha1.ReasonNodeRegistered, "node %s, which came by an earlier token of %s, is registered", holder, t.resource)
		}
		b = sqldb.Batch{}
		b.Exec(revokeOfResource, t.resource, t.createdAt)
	}
	b.Exec(pruneTokens, t.project, when(t.createdAt).Add(-keepTokens).UnixMilli())
	b.Exec(insertToken, t.id, t.project, t.resource, t.hash, t.createdAt, t.createdBy, t.expiresAt)
	return tx.Send(ctx, &b)
}

// TokenState is the state of a token; empty: there is none. A token whose time
// has passed is marked expired before that is said, so it cannot be consumed
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

// Revoke makes a token worthless, if it is not over already, and returns it as it
// is then. Denial: NotFound.
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

// end gives a token that is still issued a final state, and returns the state
// that it has then; empty: there is no such token.
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

// token reads a token; nil: there is none.
func (m *Mesh) token(ctx context.Context, id string) (*token, error) {
	rows, err := m.db.Query(ctx, tokenByID, id)
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var t *token
	if rows.Next() {
		t = new(token)
		if err := t.scan(rows); err != nil {
			return nil, fmt.Errorf("read token: %w", err)
		}
	}
	return t, rows.Err()
}

// maxTokens bounds a list.
const maxTokens = 1000

// Tokens lists the tokens of a project, or of all, the newest first.
func (m *Mesh) Tokens(ctx context.Context, project string) (v1alpha1.TokenList, error) {
	list := v1alpha1.TokenList{Items: []v1alpha1.Token{}}
	rows, err := m.db.Query(ctx, tokensOf, project, maxTokens)
	if err != nil {
		return list, fmt.Errorf("list tokens: %w", err)
	}
	defer func() { _ = rows.Close() }()
	now := m.opts.Now()
	for rows.Next() {
		var t token
		if err := t.scan(rows); err != nil {
			return list, fmt.Errorf("list tokens: %w", err)
		}
		list.Items = append(list.Items, t.shown(now))
	}
	return list, rows.Err()
}
