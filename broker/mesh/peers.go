package mesh

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

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
