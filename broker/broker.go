// Package broker is the domain of provisioning: how a declaration becomes a
// machine that has joined the mesh, and how it leaves again. It decides and it
// names what it needs from others. It knows no database, no Kubernetes and no
// network, and imports the standard library only.
//
// Begin with [Next]: it is the whole machine in one pure function. The table of
// everything it answers is in testdata/next.txt. The races, and what becomes of
// each, are in docs/spec/broker.md.
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
// Nothing but the phase is remembered between two rounds; all else is looked at
// again. So a round may be repeated, cut off, or run by another process.
//
// On its way up the resource is Pending until its namespace is ready and a
// bootstrap token is minted. Then the ProviderConfig and, second, the composite
// resource (XR) are applied: Provisioning. When the XR is ready, the machine is
// up and its node has to come: Enrolling. When the node has used the token:
// Ready. A condition that the XR will not leave by itself, or the deadline,
// makes it Failed, and Failed it stays. A token that can no longer be used is
// minted again for as long as no node has used it.
//
// On its way down, from wherever it was, [Service.Deprovision] records the
// intent and makes the token worthless, so that a machine that boots late
// cannot enrol. Then the node is drained out of the mesh: Deregistering. Only
// then is the XR deleted, and after it is seen gone the ProviderConfig, whose
// credentials the substrate needs to go: Deprovisioning. Then it is Deleted,
// and nothing is done any more.
//
// # What always holds
//
//   - The node leaves before its substrate. Deleting the substrate of a live
//     peer would leave a peer in the mesh that nobody can drain.
//   - Teardown is one way. No observation, however healthy, leads out of it.
//   - Deleted is the end: no action follows.
//   - Whatever the phase, a deletion that was requested ends in Deleted once the
//     causes that hold it are gone.
//   - A token is not replaced while the node that used it is registered: the
//     token's id is the only handle on that node.
//   - Each of the five events of a resource is published at least once when it
//     is due, under one token, and stored at most once.
package broker
