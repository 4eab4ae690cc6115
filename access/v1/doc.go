// Package v1 has the types of access.exeunt.dev/v1: User, a person or a program that the
// server gives tokens to. It does not authenticate.
//
// +k8s:deepcopy-gen=package
package v1

//go:generate go run k8s.io/code-generator/cmd/deepcopy-gen@v0.37.2 --output-file zz_generated.deepcopy.go .
