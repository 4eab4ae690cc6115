package broker_test

import (
	"fmt"

	"github.com/exeunt/exeunt/broker"
)

// A teardown, round by round: the loop observes, calls Next, and acts. The node leaves the
// mesh before the substrate is deleted.
func ExampleNext() {
	observed := broker.ObservedXR{
		NamespaceReady: true, Token: broker.TokenConsumed, NodeRegistered: true,
		ProviderConfigExists: true, SecretExists: true, XRExists: true, XRReady: true,
	}
	phase := broker.PhaseDeregistering
	for range 4 {
		var action broker.Action
		action, phase = broker.Next(observed, phase)
		fmt.Println(action, "→", phase)
		switch action { // simulates the effect of the action
		case broker.ActionDeregisterNode:
			observed.NodeRegistered = false
		case broker.ActionDeleteSubstrate:
			observed.XRExists = false
		case broker.ActionDeleteProviderConfig:
			observed.ProviderConfigExists, observed.SecretExists = false, false
		}
	}
	// Output:
	// DeregisterNode → Deregistering
	// DeleteSubstrate → Deprovisioning
	// DeleteProviderConfig → Deprovisioning
	// Noop → Deleted
}
