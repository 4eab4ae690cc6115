// Package oci holds the registry's end-to-end tests: the official conformance
// suite, and real flows with the libraries behind crane, oras and regctl,
// against the real server on both engines.
package oci
