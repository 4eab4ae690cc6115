package mesh

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

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
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		t = new(token)
		return t.scan(row)
	}, tokenByID, id)
	if err := m.db.Read(ctx, nil, &b); err != nil {
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
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var t token
		err := t.scan(row)
		list.Items = append(list.Items, t.shown(now))
		return err
	}, tokensOf, project, maxTokens)
	if err := m.db.Read(ctx, nil, &b); err != nil {
		return list, fmt.Errorf("list tokens: %w", err)
	}
	return list, nil
}
