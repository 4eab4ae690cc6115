package builtin

import (
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func resourceClaimTable() table[*resourcev1.ResourceClaim] {
	return table[*resourcev1.ResourceClaim]{
		columns: columns(text("State", "Pending, allocated, reserved or deleted.")),
		row: func(c *resourcev1.ResourceClaim, now time.Time) []any {
			var state []string
			if c.DeletionTimestamp != nil {
				state = append(state, "deleted")
			}
			switch {
			case c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0:
				state = append(state, "allocated", "reserved")
			case c.Status.Allocation != nil:
				state = append(state, "allocated")
			case c.DeletionTimestamp == nil:
				state = append(state, "pending")
			}
			return []any{c.Name, strings.Join(state, ","), age(c, now)}
		},
	}
}

func resourceSliceTable() table[*resourcev1.ResourceSlice] {
	return table[*resourcev1.ResourceSlice]{
		columns: columns(
			text("Node", "The node that has the devices."),
			text("Driver", "The driver of the devices."),
			text("Pool", "The pool that the slice is a part of."),
		),
		row: func(s *resourcev1.ResourceSlice, now time.Time) []any {
			return []any{s.Name, deref(s.Spec.NodeName, ""), s.Spec.Driver, s.Spec.Pool.Name, age(s, now)}
		},
	}
}

func deviceTaintRuleTable() table[*resourcev1.DeviceTaintRule] {
	return table[*resourcev1.DeviceTaintRule]{
		columns: columns(
			text("Key", "The key of the taint."),
			text("Value", "The value of the taint."),
			text("Effect", "What the taint prevents."),
			text("TimeAdded", "How long ago the taint was added."),
		),
		row: func(r *resourcev1.DeviceTaintRule, now time.Time) []any {
			added, t := "", r.Spec.Taint
			if t.TimeAdded != nil {
				added = since(t.TimeAdded.Time, now)
			}
			return []any{r.Name, t.Key, t.Value, string(t.Effect), added, age(r, now)}
		},
	}
}

// trustBundleTable has no age, as in Kubernetes.
func trustBundleTable() table[*certificatesv1.ClusterTrustBundle] {
	return table[*certificatesv1.ClusterTrustBundle]{
		columns: named(text("SignerName", "The signer whose certificates the bundle verifies.")),
		row: func(b *certificatesv1.ClusterTrustBundle, _ time.Time) []any {
			return []any{b.Name, or(b.Spec.SignerName, none)}
		},
	}
}

// podCertificateTable has no age, as in Kubernetes.
func podCertificateTable() table[*certificatesv1.PodCertificateRequest] {
	return table[*certificatesv1.PodCertificateRequest]{
		columns: named(
			text("PodName", "The pod that gets the certificate."),
			text("ServiceAccountName", "The service account of the pod."),
			text("NodeName", "The node that runs the pod."),
			text("SignerName", "The signer that is asked."),
			text("State", "Pending, Issued, Denied or Failed."),
			wide(text("UnverifiedUserAnnotations", "Hints of the pod's author for the signer.")),
		),
		row: func(r *certificatesv1.PodCertificateRequest, _ time.Time) []any {
			state := "Pending"
			for _, c := range r.Status.Conditions {
				if endsPodCertificate(c.Type) {
					state = c.Type
				}
			}
			s := r.Spec
			return []any{r.Name, s.PodName, s.ServiceAccountName, string(s.NodeName), s.SignerName, state, labels.FormatLabels(s.UnverifiedUserAnnotations)}
		},
	}
}
