//go:build !unix

package durable

import "os"

// KeepOwner does nothing here.
func KeepOwner(*os.File) error { return nil }

// KeepOwners does nothing here.
func KeepOwners(string) error { return nil }
