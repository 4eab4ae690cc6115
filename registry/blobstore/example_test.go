package blobstore_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/exeunt/exeunt/registry/blobstore"
)

// A writer gets its own path. After Finish, the bytes can be read from any offset. Remove
// is idempotent.
func ExampleStore() {
	dir, err := os.MkdirTemp("", "blobs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store, err := blobstore.OpenDir(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := store.Create(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := io.WriteString(w, "exeunt omnes"); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("finish:", w.Finish(), w.Close())
	r, err := store.Open(ctx, w.Path(), 7)
	if err != nil {
		fmt.Println(err)
		return
	}
	rest, err := io.ReadAll(r)
	fmt.Println(string(rest), err, r.Close())
	fmt.Println("remove:", store.Remove(ctx, w.Path()), store.Remove(ctx, w.Path()))
	// Output:
	// finish: <nil> <nil>
	// omnes <nil> <nil>
	// remove: <nil> <nil>
}
