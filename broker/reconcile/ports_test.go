package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/reconcile"
	"github.com/exeunt/exeunt/broker/sqlbroker"
)

// repository is the real repository, with faults.
type repository struct{ w *world }

func (r repository) do(call string, fn func() error) error {
	if err := r.w.ask(call, false); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	return r.w.ask(call, true)
}

func (r repository) Create(ctx context.Context, p broker.ProvisionedResource) error {
	return r.do("create", func() error { return r.w.repository.Create(ctx, p) })
}

func (r repository) Get(ctx context.Context, id broker.ProvisionedResourceID) (p broker.ProvisionedResource, err error) {
	err = r.do("get", func() error { p, err = r.w.repository.Get(ctx, id); return err })
	return p, err
}

func (r repository) UpdatePhase(ctx context.Context, from broker.ProvisionedResourcePhase, p broker.ProvisionedResource) error {
	return r.do("update phase", func() error { return r.w.repository.UpdatePhase(ctx, from, p) })
}

func (r repository) BindToken(ctx context.Context, id broker.ProvisionedResourceID, previous, token broker.BootstrapTokenID) error {
	return r.do("bind", func() error { return r.w.repository.BindToken(ctx, id, previous, token) })
}

func (r repository) RecordDeletionIntent(ctx context.Context, p broker.ProvisionedResource) error {
	return r.do("record", func() error { return r.w.repository.RecordDeletionIntent(ctx, p) })
}

func (r repository) Emit(ctx context.Context, from broker.ProvisionedResourcePhase, e broker.Event) error {
	return r.do("emit", func() error { return r.w.repository.Emit(ctx, from, e) })
}

func (r repository) BeginRound(ctx context.Context, id broker.ProvisionedResourceID, now, until time.Time) (round sqlbroker.Round, err error) {
	err = r.do("begin round", func() error { round, err = r.w.repository.BeginRound(ctx, id, now, until); return err })
	return round, err
}

func (r repository) EndRound(ctx context.Context, round sqlbroker.Round) error {
	return r.do("end round", func() error { return r.w.repository.EndRound(ctx, round) })
}

func (r repository) Forget(ctx context.Context, id broker.ProvisionedResourceID) (gone bool, err error) {
	err = r.do("forget", func() error { gone, err = r.w.repository.Forget(ctx, id); return err })
	return gone, err
}

// declarations is the port to the API.
type declarations struct{ w *world }

func (d declarations) Find(_ context.Context, id broker.ProvisionedResourceID) (found reconcile.Declaration, ok bool, err error) {
	err = d.w.at("find", id, func(th *thing) {
		ok = th.declared && !th.released
		found = reconcile.Declaration{Deleting: th.deleting, Request: broker.ProvisionRequest{
			ID: id, Project: "shop", Name: string(id), Blueprint: d.w.blueprint.Ref, Credential: "cloud",
		}}
	})
	return found, ok, err
}

func (d declarations) Show(_ context.Context, id broker.ProvisionedResourceID, view reconcile.View) error {
	return d.w.at("show", id, func(th *thing) { th.view = view })
}

func (d declarations) Release(_ context.Context, id broker.ProvisionedResourceID) error {
	return d.w.at("release", id, func(th *thing) { th.released = true })
}

// meshPort is the port to the mesh.
type meshPort struct{ w *world }

func (m meshPort) Mint(_ context.Context, r broker.MintRequest) (token broker.BootstrapToken, err error) {
	err = m.w.at("mint", r.Resource, func(th *thing) {
		m.w.minted++
		th.token = broker.BootstrapTokenID(fmt.Sprintf("token-%d", m.w.minted))
		th.state = broker.TokenIssued
		token = broker.BootstrapToken{ID: th.token, Secret: broker.NewTokenSecret("s3cret")}
	})
	return token, err
}

func (m meshPort) find(call string, id broker.BootstrapTokenID, fn func(*thing)) error {
	if err := m.w.ask(call, false); err != nil {
		return err
	}
	m.w.mu.Lock()
	fn(m.w.byToken(id))
	m.w.mu.Unlock()
	return m.w.ask(call, true)
}

func (m meshPort) State(_ context.Context, id broker.BootstrapTokenID) (state broker.TokenState, err error) {
	err = m.find("token state", id, func(th *thing) { state = th.state })
	return state, err
}

func (m meshPort) Revoke(_ context.Context, id broker.BootstrapTokenID) error {
	return m.find("revoke", id, func(th *thing) {
		if th.state == broker.TokenIssued {
			th.state = broker.TokenRevoked
		}
	})
}

func (m meshPort) Deregister(_ context.Context, id broker.BootstrapTokenID) error {
	return m.find("deregister", id, func(th *thing) { th.drained = true })
}

func (m meshPort) NodeRegistered(_ context.Context, id broker.BootstrapTokenID) (registered bool, err error) {
	err = m.find("node registered", id, func(th *thing) { registered = th.node })
	return registered, err
}

func (m meshPort) Holding(context.Context, broker.BootstrapTokenID) ([]broker.Reason, error) {
	return []broker.Reason{{Holder: broker.HolderPeer, Name: "peer-1"}}, nil
}

// gate is the port to the namespace.
type gate struct{ w *world }

func (g gate) State(context.Context, broker.ProjectID) (broker.NamespaceState, error) {
	return g.w.namespace, g.w.ask("namespace", false)
}

// outside is the port to the cluster and the catalog.
type outside struct{ w *world }

func (o outside) Version(context.Context, broker.ProjectID, broker.BlueprintVersionRef) (broker.BlueprintVersion, error) {
	return o.w.blueprint, o.w.ask("version", false)
}

func (o outside) Find(_ context.Context, _ broker.ProjectID, ref broker.CloudCredentialRef) (broker.CloudCredential, error) {
	return broker.CloudCredential{Ref: ref, Provider: "aws"}, o.w.ask("credential", false)
}

func (o outside) Observe(_ context.Context, r broker.ProvisionedResource) (seen broker.ObservedSubstrate, err error) {
	err = o.w.at("observe", r.ID(), func(th *thing) {
		seen = broker.ObservedSubstrate{
			SecretExists: th.secret, DeliveredToken: th.delivered, ProviderConfigExists: th.provider,
			XRExists: th.xr, XRDeleting: th.xrDeleting, XRReady: th.xrReady, XRFailed: th.xrFailed,
		}
		if th.xrDeleting {
			seen.Reasons = []broker.Reason{{Holder: broker.HolderFinalizer, Name: "hold.example", Object: "XNode/x"}}
		}
	})
	return seen, err
}

func (o outside) DeliverToken(_ context.Context, r broker.ProvisionedResource, _ broker.BlueprintVersion, token broker.BootstrapToken) error {
	return o.w.at("deliver", r.ID(), func(th *thing) {
		if stored, err := o.w.repository.Get(context.Background(), r.ID()); err == nil && stored.TokenID() != token.ID {
			o.w.note("token delivered before it was bound")
		}
		th.secret, th.delivered = true, token.ID
	})
}

func (o outside) ApplyProviderConfig(_ context.Context, r broker.ProvisionedResource, _ broker.BlueprintVersion) error {
	return o.w.at("apply ProviderConfig", r.ID(), func(th *thing) {
		th.provider = true
		o.w.note("ProviderConfig applied")
	})
}

var errNoConfig = errors.New("the XR comes before its ProviderConfig")

func (o outside) CreateXR(_ context.Context, r broker.ProvisionedResource, _ broker.BlueprintVersion) error {
	var refused error
	err := o.w.at("create XR", r.ID(), func(th *thing) {
		if !th.provider {
			refused = errNoConfig
			return
		}
		th.xr = true
		o.w.note("XR created")
	})
	return errors.Join(refused, err)
}

func (o outside) DeleteXR(_ context.Context, r broker.ProvisionedResource) error {
	return o.w.at("delete XR", r.ID(), func(th *thing) {
		if th.node || th.state == broker.TokenIssued {
			o.w.note("XR deleted under a node")
		}
		if th.xr && !th.xrDeleting {
			th.xrDeleting = true
			o.w.note("XR deleted")
		}
	})
}

func (o outside) DeleteProviderConfig(_ context.Context, r broker.ProvisionedResource) error {
	return o.w.at("delete ProviderConfig", r.ID(), func(th *thing) {
		if th.xr {
			o.w.note("ProviderConfig deleted before the XR")
		}
		th.provider, th.secret, th.delivered = false, false, ""
		o.w.note("ProviderConfig gone")
	})
}
