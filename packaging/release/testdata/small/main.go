// Command small is a program with one module, which TestPackTwice packs.
package main

import "github.com/google/go-containerregistry/pkg/v1/types"

func main() { println(types.OCILayer) }
