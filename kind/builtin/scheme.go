package builtin

import (
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Scheme returns the scheme of all built-in types: only their external versions, with
// their defaults and field labels. It must not be changed.
func Scheme() *runtime.Scheme { return scheme() }

// Codecs returns the serializers of Scheme. They stream collections, so that a list is
// never in memory twice.
func Codecs() serializer.CodecFactory { return codecs() }

var scheme = sync.OnceValue(newScheme)

var codecs = sync.OnceValue(func() serializer.CodecFactory {
	return serializer.NewCodecFactory(Scheme(),
		serializer.WithStreamingCollectionEncodingToJSON(),
		serializer.WithStreamingCollectionEncodingToProtobuf())
})

// newScheme panics if two types have one name or a default has no type. The input is
// constant, so one test that calls it is proof.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(
		admissionv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme,
		coordinationv1.AddToScheme, eventsv1.AddToScheme, discoveryv1.AddToScheme,
		policyv1.AddToScheme, networkingv1.AddToScheme, rbacv1.AddToScheme,
		schedulingv1.AddToScheme, storagev1.AddToScheme,
		autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		certificatesv1.AddToScheme, flowcontrolv1.AddToScheme, nodev1.AddToScheme,
		resourcev1.AddToScheme, storagemigrationv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
		addFieldLabels, addAutoscalerConversions,
	)
	if err := add.AddToScheme(s); err != nil {
		panic(fmt.Sprintf("builtin scheme: %v", err))
	}
	// The options of all verbs, Status and the discovery documents are in group "",
	// version "v1".
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	addDefaults(s)
	return s
}

// fieldLabels are the labels that a fieldSelector may name, besides metadata.name and
// metadata.namespace, which every kind has. The value is the converted name; "" keeps the
// name. The values of selectors are not changed: the reader of the body decides what an
// absent field means.
var fieldLabels = map[schema.GroupVersionKind]map[string]string{
	corev1.SchemeGroupVersion.WithKind("Pod"): {
		"spec.nodeName":            "",
		"spec.host":                "spec.nodeName",
		"spec.restartPolicy":       "",
		"spec.schedulerName":       "",
		"spec.serviceAccountName":  "",
		"spec.hostNetwork":         "",
		"status.phase":             "",
		"status.podIP":             "",
		"status.nominatedNodeName": "",
	},
	corev1.SchemeGroupVersion.WithKind("Node"):                              {"spec.unschedulable": ""},
	corev1.SchemeGroupVersion.WithKind("ReplicationController"):             {"status.replicas": ""},
	corev1.SchemeGroupVersion.WithKind("Namespace"):                         {"status.phase": ""},
	corev1.SchemeGroupVersion.WithKind("Secret"):                            {"type": ""},
	corev1.SchemeGroupVersion.WithKind("Service"):                           {"spec.clusterIP": "", "spec.type": ""},
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"):                        {"status.replicas": ""},
	batchv1.SchemeGroupVersion.WithKind("Job"):                              {"status.successful": ""},
	certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"): {"spec.signerName": ""},
	corev1.SchemeGroupVersion.WithKind("Event"): {
		"involvedObject.kind":            "",
		"involvedObject.namespace":       "",
		"involvedObject.name":            "",
		"involvedObject.uid":             "",
		"involvedObject.apiVersion":      "",
		"involvedObject.resourceVersion": "",
		"involvedObject.fieldPath":       "",
		"reason":                         "",
		"reportingComponent":             "",
		"source":                         "",
		"type":                           "",
	},
	resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"): {
		resourcev1.ResourceSliceSelectorNodeName: "",
		resourcev1.ResourceSliceSelectorDriver:   "",
		resourcev1.ResourceSliceSelectorPoolName: "",
	},
	certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"): {"spec.signerName": ""},
	certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"): {
		"spec.signerName": "",
		"spec.podName":    "",
		"spec.nodeName":   "",
	},
	eventsv1.SchemeGroupVersion.WithKind("Event"): {
		"regarding.kind":            "involvedObject.kind",
		"regarding.namespace":       "involvedObject.namespace",
		"regarding.name":            "involvedObject.name",
		"regarding.uid":             "involvedObject.uid",
		"regarding.apiVersion":      "involvedObject.apiVersion",
		"regarding.resourceVersion": "involvedObject.resourceVersion",
		"regarding.fieldPath":       "involvedObject.fieldPath",
		"reason":                    "",
		"reportingController":       "reportingComponent",
		"type":                      "",
	},
}

func addFieldLabels(s *runtime.Scheme) error {
	for gvk, labels := range fieldLabels {
		convert := func(label, value string) (string, string, error) {
			if label == "metadata.name" || label == "metadata.namespace" {
				return label, value, nil
			}
			renamed, ok := labels[label]
			if !ok {
				return "", "", fmt.Errorf("field label not supported: %s", label)
			}
			return or(renamed, label), value, nil
		}
		if err := s.AddFieldLabelConversionFunc(gvk, convert); err != nil {
			return err
		}
	}
	return nil
}

// selectableFields returns a kind's field labels after conversion.
func selectableFields(gvk schema.GroupVersionKind) []string {
	var out []string
	for label, renamed := range fieldLabels[gvk] {
		out = append(out, or(renamed, label))
	}
	return distinct(out)
}
