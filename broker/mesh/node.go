package mesh

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// node is a row of mesh_nodes. Times are Unix milliseconds.
type node struct {
	uid, project, name, token string
	credential                []byte
	enrolledAt, lastSeen      int64
	ready                     bool
}

// scan reads nodeColumns.
func (n *node) scan(row sqldb.Row) error {
	return row.Scan(&n.uid, &n.project, &n.name, &n.token, &n.credential, &n.enrolledAt, &n.lastSeen, &n.ready)
}

func (n *node) seenAt() time.Time { return when(n.lastSeen) }

// Node is an authenticated node.
type Node struct{ UID, Project, Name string }

// Authenticate finds the node of a credential. Denial: UnknownNode, for an
// unknown node and for a wrong secret.
func (m *Mesh) Authenticate(ctx context.Context, credential string) (Node, error) {
	uid, secret, ok := parseCredential(credential)
	if !ok {
		return Node{}, errUnknownNode
	}
	n, err := m.node(ctx, nodeByUID, uid)
	if err != nil {
		return Node{}, err
	}
	if n == nil || !sameDigest(n.credential, secret) {
		return Node{}, errUnknownNode
	}
	return Node{UID: n.uid, Project: n.project, Name: n.name}, nil
}

// maxCredential bounds a credential's text.
const maxCredential = 200

func parseCredential(text string) (uid, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, v1alpha1.CredentialPrefix)
	if !ok || len(text) > maxCredential {
		return "", "", false
	}
	uid, secret, ok = strings.Cut(rest, "_")
	return uid, secret, ok && uuid.Validate(uid) == nil && validSecret().MatchString(secret)
}

// node reads a node outside any transaction. It returns nil if there is none.
func (m *Mesh) node(ctx context.Context, statement string, key string) (n *node, err error) {
	if err := sqldb.Each(ctx, m.db, func(row sqldb.Row) error {
		n = new(node)
		return n.scan(row)
	}, statement, key); err != nil {
		return nil, fmt.Errorf("read node: %w", err)
	}
	return n, nil
}

// member is a node and its object, as a transaction read them. Either may be
// missing.
type member struct {
	node   *node
	object *stored
}

// stored is the object of a node.
type stored struct{ *store.Stored }

// find reads a node and its object, by the uid that they share.
func find(ctx context.Context, tx *store.Tx, uid string) (member, error) {
	var found member
	if err := sqldb.Each(ctx, tx, func(row sqldb.Row) error {
		found.node = new(node)
		return found.node.scan(row)
	}, nodeByUID, uid); err != nil {
		return member{}, fmt.Errorf("read node %s: %w", uid, err)
	}
	o, err := tx.GetByUID(ctx, types.UID(uid))
	if err != nil {
		return member{}, fmt.Errorf("read node %s: %w", uid, err)
	}
	if o != nil {
		found.object = &stored{o}
	}
	return found, nil
}

// checkProject refuses a project whose namespace takes no new objects.
func checkProject(ctx context.Context, tx *store.Tx, project string) error {
	exists, deleting, err := taken(ctx, tx, object.Namespaces, "", project)
	switch {
	case err != nil:
		return err
	case !exists:
		return deny(v1alpha1.ReasonProjectGone, "there is no namespace %q", project)
	case deleting:
		return deny(v1alpha1.ReasonProjectGone, "namespace %q is terminating", project)
	}
	return nil
}

// taken reports whether an object with the key exists, and whether it is
// DELETING.
func taken(ctx context.Context, tx *store.Tx, kind, namespace, name string) (exists, deleting bool, err error) {
	h, exists, err := tx.Head(ctx, object.Key{Kind: kind, Namespace: namespace, Name: name})
	return exists, h.Deletion != 0, err
}

// checkLabel refuses a value that is not a DNS label.
func checkLabel(field, value string) error {
	if problems := validation.IsDNS1123Label(value); len(problems) > 0 {
		return invalid(field, "%.80q: %s", value, strings.Join(problems, ", "))
	}
	return nil
}

// Heartbeat records a heartbeat and answers whether the node must drain. It
// writes the node's own row and no object; it puts a node that was unreachable
// under review, which marks it ready again. Denial: UnknownNode, when the node
// has been removed meanwhile.
func (m *Mesh) Heartbeat(ctx context.Context, n Node) (v1alpha1.Heartbeat, error) {
	answer := v1alpha1.Heartbeat{HeartbeatSeconds: seconds(m.opts.Heartbeat)}
	ready, err := m.recordHeartbeat(ctx, n.UID)
	if err != nil {
		return answer, err
	}
	if !ready {
		m.engine.Wake()
	}
	answer.Self, err = m.self(ctx, n)
	return answer, err
}

// recordHeartbeat is the transaction of a heartbeat. The removal of a node
// deletes its row, so in either order no heartbeat of a removed node is
// recorded.
func (m *Mesh) recordHeartbeat(ctx context.Context, uid string) (ready bool, err error) {
	tx, err := m.db.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("heartbeat: %w", err)
	}
	defer tx.Rollback() // does nothing after a commit
	now := m.opts.Now()
	registered, err := sqldb.First(ctx, tx, []any{&ready}, seen, uid, now.UnixMilli())
	if err != nil {
		return false, fmt.Errorf("heartbeat: %w", err)
	}
	if !registered {
		return false, errUnknownNode
	}
	if !ready {
		var b sqldb.Batch
		m.engine.Enqueue(&b, uid, "heard", now)
		if err := tx.Send(ctx, &b); err != nil {
			return false, fmt.Errorf("heartbeat: %w", err)
		}
	}
	return ready, tx.Commit(ctx)
}

// MaxWait is the longest wait of a poll.
const MaxWait = 30 * time.Second

// Peers lists the other nodes of a project and reports whether this one must
// drain. With the revision of an earlier answer it waits, up to wait, until a
// node has changed since. It follows the store's feed, so it sees changes of
// all replicas. Denial: UnknownNode, when the node has been removed.
func (m *Mesh) Peers(ctx context.Context, n Node, since int64, wait time.Duration) (v1alpha1.Peers, error) {
	if since > 0 && wait > 0 {
		changed, upTo, err := m.await(ctx, n.Project, since, min(wait, MaxWait))
		if err != nil {
			return v1alpha1.Peers{}, err
		}
		if !changed {
			self, err := m.self(ctx, n)
			return v1alpha1.Peers{Revision: upTo, Self: self}, err
		}
	}
	return m.peers(ctx, n)
}

// await waits until a node of the project changes. A compacted revision counts
// as changed, because the answer is the whole list.
func (m *Mesh) await(ctx context.Context, project string, since int64, wait time.Duration) (changed bool, upTo int64, err error) {
	watcher, err := m.store.Watch(ctx, store.WatchRequest{Kind: storage, Namespace: project, From: since})
	if object.Is(err, object.Expired) {
		return true, 0, nil
	}
	if err != nil {
		return false, 0, fmt.Errorf("watch peers: %w", err)
	}
	defer watcher.Close()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(m.closing, cancel)()
	for upTo = since; ; {
		events, at, err := watcher.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return false, upTo, nil
		case object.Is(err, object.Expired):
			return true, 0, nil
		case err != nil:
			return false, 0, fmt.Errorf("watch peers: %w", err)
		case len(events) > 0:
			return true, at, nil
		}
		upTo = at
	}
}

// peers reads the current list.
func (m *Mesh) peers(ctx context.Context, n Node) (v1alpha1.Peers, error) {
	listing, err := m.store.List(ctx, store.ListRequest{Kind: storage, Namespace: n.Project})
	if err != nil {
		return v1alpha1.Peers{}, fmt.Errorf("list peers: %w", err)
	}
	out := v1alpha1.Peers{Revision: listing.Revision(), Changed: true, Peers: []v1alpha1.Peer{}}
	registered := false
	for listing.Next() {
		o, err := decodeNode(listing.Object().Body)
		if err != nil {
			return out, err
		}
		switch {
		case string(o.UID) == n.UID && o.Status.Phase != v1alpha1.PhaseLeft:
			registered, out.Self = true, selfOf(o, m.opts.Now())
		case o.Status.Phase != v1alpha1.PhaseLeft:
			out.Peers = append(out.Peers, peerOf(o))
		}
	}
	if err := listing.Err(); err != nil {
		return out, fmt.Errorf("list peers: %w", err)
	}
	if !registered {
		return out, errUnknownNode
	}
	return out, nil
}

func peerOf(o *v1alpha1.MeshNode) v1alpha1.Peer {
	p := v1alpha1.Peer{UID: string(o.UID), Name: o.Name, Address: o.Spec.Address, Phase: o.Status.Phase}
	if o.DeletionTimestamp != nil {
		p.Phase = v1alpha1.PhaseDraining // the review may not have written it yet
	}
	return p
}

// selfOf reports whether a node must drain.
func selfOf(o *v1alpha1.MeshNode, now time.Time) v1alpha1.Self {
	if o.DeletionTimestamp == nil {
		return v1alpha1.Self{}
	}
	left := o.DeletionTimestamp.Add(time.Duration(o.Spec.DrainTimeoutSeconds) * time.Second).Sub(now)
	return v1alpha1.Self{Draining: true, DrainSeconds: int64(max(left, 0) / time.Second)}
}

// self reads a node's own object.
func (m *Mesh) self(ctx context.Context, n Node) (v1alpha1.Self, error) {
	found, err := m.store.Get(ctx, object.Key{Kind: storage, Namespace: n.Project, Name: n.Name})
	if object.Is(err, object.NotFound) || err == nil && string(found.UID) != n.UID {
		return v1alpha1.Self{}, errUnknownNode
	}
	if err != nil {
		return v1alpha1.Self{}, fmt.Errorf("read node: %w", err)
	}
	o, err := decodeNode(found.Body)
	if err != nil {
		return v1alpha1.Self{}, err
	}
	return selfOf(o, m.opts.Now()), nil
}
