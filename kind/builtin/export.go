package builtin

import "github.com/exeunt/exeunt/kind"

// Wire is how built-in objects are read and written. Scale, which kinds of all
// groups show as a subresource, is one of them.
func Wire() *kind.Wire { return wire() }
