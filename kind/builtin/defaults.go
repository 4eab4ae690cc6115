package builtin

import "k8s.io/apimachinery/pkg/runtime"

// addDefaults registers the defaults. Decoding a request and applying a patch both run
// them, so each must be idempotent.
func addDefaults(s *runtime.Scheme) {
	addPodDefaults(s)
	addCoreDefaults(s)
	addAppsDefaults(s)
	addBatchDefaults(s)
	addOtherDefaults(s)
	addAdmissionDefaults(s)
}

// defaults registers the defaulting function of one type.
func defaults[T any, P pointerTo[T]](s *runtime.Scheme, fill func(P)) {
	s.AddTypeDefaultingFunc(P(new(T)), func(obj any) { fill(obj.(P)) })
}

// fill sets *p to v if *p is the zero value.
func fill[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// fillPtr sets *p to a pointer to v if *p is nil.
func fillPtr[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// deref returns *p, or v if p is nil.
func deref[T any](p *T, v T) T {
	if p == nil {
		return v
	}
	return *p
}
