// Package v1 holds the API types of lifecycle.exeunt.dev/v1: the queries
// DeletionPreview and DeletionReport, the read-only ArchivedObject, and the
// commands Restore and FinalizerRemoval. Queries and commands are requests in the
// form of an object: the client creates one, and the server answers in status. It stores
// nothing but Restores, which it works on until they have ended.
//
// The package holds types only; their copies and schemas are generated from them. The
// packages preview, report, archive and finalizer beside it implement them.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
package v1

//go:generate go run k8s.io/code-generator/cmd/deepcopy-gen@v0.37.2 --output-file zz_generated.deepcopy.go .
//go:generate go run k8s.io/kube-openapi/cmd/openapi-gen@v0.0.0-20260721132016-d427ff9ee9ad --output-dir . --output-pkg github.com/exeunt/exeunt/deletion/v1 --output-file zz_generated.openapi.go --report-filename /dev/null .
