package broker_test

import (
	"testing"

	"github.com/exeunt/exeunt/broker"
)

func TestWhy(t *testing.T) {
	t.Parallel()
	reasons := []broker.Reason{
		{Holder: broker.HolderFinalizer, Name: "composite.apiextensions.crossplane.io", Object: "XNode/web-1a2b", Message: "2 resources left"},
		{Holder: broker.HolderPeer, Name: "peer-7", Message: "3 connections open"},
		{Holder: broker.HolderNamespace, Name: "shop", Message: "Pending"},
		{Holder: broker.HolderToken, Name: "t1", Message: "expires at noon"},
		{Holder: broker.HolderCondition, Name: "Synced", Object: "XNode/web-1a2b", Message: "no quota"},
		{Holder: broker.HolderDeadline, Message: "1h0m0s"},
	}
	peer := "peer peer-7: 3 connections open"
	synced := "condition Synced on XNode/web-1a2b: no quota"
	finalizer := "finalizer composite.apiextensions.crossplane.io on XNode/web-1a2b: 2 resources left"
	for _, test := range []struct {
		observed broker.ObservedXR
		phase    broker.ProvisionedResourcePhase
		want     string
	}{
		{broker.ObservedXR{}, broker.PhasePending, "waiting for the namespace to be ready (namespace shop: Pending; token t1: expires at noon; " + peer + ")"},
		{broker.ObservedXR{NamespaceReady: true}, broker.PhasePending, "waiting for a bootstrap token (namespace shop: Pending; token t1: expires at noon; " + peer + ")"},
		{broker.ObservedXR{NodeRegistered: true}, broker.PhasePending, "the XR is gone; waiting for its node to leave the mesh (namespace shop: Pending; token t1: expires at noon; " + peer + ")"},
		{broker.ObservedXR{NamespaceReady: true, Token: broker.TokenIssued}, broker.PhasePending, "waiting for the XR to be applied (namespace shop: Pending; token t1: expires at noon; " + peer + ")"},
		{broker.ObservedXR{XRExists: true}, broker.PhaseProvisioning, "waiting for the XR to become ready (" + synced + "; " + finalizer + "; " + peer + ")"},
		{broker.ObservedXR{XRExists: true, XRDeleting: true}, broker.PhaseProvisioning, "another client deletes the XR; the broker creates it again when it is gone (" + synced + "; " + finalizer + "; " + peer + ")"},
		{broker.ObservedXR{XRExists: true, XRReady: true}, broker.PhaseEnrolling, "waiting for the node to enrol (token t1: expires at noon)"},
		{broker.ObservedXR{}, broker.PhaseReady, ""},
		{broker.ObservedXR{XRExists: true, XRFailed: true}, broker.PhaseFailed, "the XR has failed (" + synced + "; deadline: 1h0m0s)"},
		{broker.ObservedXR{Overdue: true}, broker.PhaseFailed, "the resource did not become ready in time (" + synced + "; deadline: 1h0m0s)"},
		{broker.ObservedXR{}, broker.PhaseFailed, "the resource has failed (" + synced + "; deadline: 1h0m0s)"},
		{broker.ObservedXR{NodeRegistered: true}, broker.PhaseDeregistering, "waiting for the node to leave the mesh (" + peer + "; token t1: expires at noon)"},
		{broker.ObservedXR{}, broker.PhaseDeregistering, "waiting for the bootstrap token to be revoked (" + peer + "; token t1: expires at noon)"},
		{broker.ObservedXR{XRExists: true}, broker.PhaseDeprovisioning, "waiting for the XR to be gone (" + finalizer + "; " + synced + ")"},
		{broker.ObservedXR{}, broker.PhaseDeprovisioning, "waiting for the ProviderConfig and the token's secret to be gone (" + finalizer + "; " + synced + ")"},
		{broker.ObservedXR{}, broker.PhaseDeleted, ""},
	} {
		test.observed.Reasons = reasons
		if got := broker.Why(test.observed, test.phase); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.phase, got, test.want)
		}
	}
	if got, want := broker.Why(broker.ObservedXR{XRExists: true}, broker.PhaseDeprovisioning), "waiting for the XR to be gone"; got != want {
		t.Errorf("without reasons: %s", got)
	}
}
