package apiservice

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
)

// Priorities, with the values that Kubernetes gives to the core group and to custom kinds.
// Discovery lists the preferred version of a group first, and so do these.
const (
	corePriority    = 18000
	builtInPriority = 17000
	customPriority  = 1000
	customVersion   = 100
	builtInVersion  = 15
)

// served returns the APIServices of all group versions, by name.
func served(kinds *kind.Snapshot) map[string]*unstructured.Unstructured {
	builtIn := map[schema.GroupVersion]bool{}
	for _, k := range kinds.Kinds {
		for _, v := range k.Versions {
			gv := v.GVK.GroupVersion()
			builtIn[gv] = builtIn[gv] || k.Definition == ""
		}
	}
	out := map[string]*unstructured.Unstructured{}
	for _, group := range kinds.Groups() {
		for i, version := range kinds.GroupVersions(group) {
			gv := schema.GroupVersion{Group: group, Version: version}
			out[version+"."+group] = service(gv, builtIn[gv], i)
		}
	}
	return out
}

// service makes the APIService of a group version; place is its place in the order of the
// group's versions.
func service(gv schema.GroupVersion, builtIn bool, place int) *unstructured.Unstructured {
	writer, groupPriority, versionPriority := fromCustom, customPriority, customVersion-place
	switch {
	case gv.Group == "":
		writer, groupPriority, versionPriority = fromProgram, corePriority, 1
	case builtIn:
		writer, groupPriority, versionPriority = fromProgram, builtInPriority, builtInVersion-place
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": "APIService",
		"metadata": map[string]any{
			"name": gv.Version + "." + gv.Group, "labels": map[string]any{managed: writer},
		},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": int64(groupPriority), "versionPriority": int64(versionPriority),
		},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Available", "status": "True", "reason": "Local", "message": "Local APIServices are always available",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}}},
	}}
}
