// Package conformance runs specs of Kubernetes' own end-to-end tests against our server, with the
// real kube-controller-manager, kube-scheduler and kwok: the Conformance specs of
// [sig-api-machinery], and those of [sig-apps] about ReplicaSets, Deployments, Jobs and
// StatefulSets.
//
// left-out.txt names the specs that do not run, each with its reason: what needs a kubelet or
// containers, what we do not serve, and defects. A name there that is no spec fails the test, so the
// list only shrinks.
//
// Building the programs takes longer than all other tests, so they run separately: make
// conformance. Against a real kube-apiserver the same list runs with
//
//	make long RUN=conformance CONFORMANCE=-real
//
// and CONFORMANCE='-real -left-out' runs what is left out: what passes there must pass here.
package conformance
