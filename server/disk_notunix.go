//go:build !unix

package server

import "errors"

// disk is not known on this system.
func disk(string) (size, free int64, err error) { return 0, 0, errors.ErrUnsupported }
