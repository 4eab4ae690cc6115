// Package broker is the domain of provisioning: how a declaration becomes a
// machine that has joined the mesh, and how the machine leaves again. It
// decides, and it declares the ports that it needs. It imports the standard
// library only: no database, no Kubernetes, no network.
//
// Begin with [Next]: the whole state machine in one pure function.
// testdata/next.txt holds the table of all its answers; docs/spec/broker.md
// holds the races and their answers.
//
// # The story
//
// A [ProvisionedResource] joins a [BlueprintVersion], a cloud credential and a
// project, which is a namespace. [Service.Provision] checks all of that, and
// stores it, or refuses and stores nothing.
//
// From then on a loop looks at it, one resource at a time, in four steps:
//
//	observe           what is: the token, the node, the substrate    [ObservedXR]
//	decide            what follows from it                           [Next]
//	apply             the one action                                 ports
//	emit and persist  the event, then the phase                      [Service.Advance]
//
// Only the phase is stored between two rounds; a round reads all other facts
// again. So a round may be repeated, interrupted, or run by another process.
//
// On the way up the resource is Pending until its namespace is ready and a
// bootstrap token is minted. Then the broker applies the ProviderConfig and,
// second, the composite resource (XR): Provisioning. When the XR is ready, the
// machine runs and its node must enrol: Enrolling. When the node has used the
// token: Ready. A condition that the XR cannot leave by itself, or the
// deadline, makes the resource Failed; only deletion ends Failed. The broker
// replaces a token that can no longer be used, as long as no node has used it.
//
// On the way down, from any phase, [Service.Deprovision] records the intent and
// revokes the token, so that a machine that boots late cannot enrol. Then the
// mesh drains the node: Deregistering. Only then does the broker delete the XR,
// and after the XR is observed gone the ProviderConfig, whose credentials the
// substrate needs for its own deletion: Deprovisioning. Then the resource is
// Deleted, and no action follows.
//
// # What always holds
//
//   - The node leaves before its substrate. Deleting the substrate of a live
//     peer would leave a peer in the mesh that can no longer drain.
//   - Teardown is one way. No observation leads out of it.
//   - Deleted is the end: no action follows.
//   - From any phase, a requested deletion ends in Deleted once the causes that
//     hold it are gone.
//   - A token is not replaced while the node that used it is registered: the
//     token's id is the only handle on that node.
//   - Each of the five events of a resource is stored at most once, and
//     published at least once under one token.
package broker
