// Package definitions holds the generated description of the built-in types
// while gen runs; its source is not committed.
package definitions
