package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
)

// A run removes what it has pushed: manifests, with their tags, and blobs, by
// the requests that every registry has. No request removes an empty repository.
// Where repositories belong to a namespace of a Kubernetes API
// (RegistryConfig.REST), the run makes the namespace, and removing it removes
// the repository.

// prepareNamespace makes the namespace of the repository, if there is an API.
func (b *registryBench) prepareNamespace(ctx context.Context) error {
	if b.REST == nil {
		return nil
	}
	p, err := openPool(b.REST, 1)
	if err != nil {
		return err
	}
	defer p.close()
	return ensureNamespace(ctx, p.client(0), b.namespace(), noArchive)
}

func (b *registryBench) namespace() string {
	first, _, _ := strings.Cut(b.Repository, "/")
	return first
}

// cleanup removes what the run has pushed. It continues after Ctrl-C.
func (b *registryBench) cleanup(ctx context.Context) error {
	if b.Keep {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var manifests, blobs []string
	for i := range b.images {
		manifests = append(manifests, "manifests/"+newBlob(b.images[i].manifest).digest)
		for _, blob := range b.images[i].blobs {
			blobs = append(blobs, "blobs/"+blob.digest)
		}
	}
	for _, digest := range b.largeLayers {
		blobs = append(blobs, "blobs/"+digest)
	}
	err := errors.Join( // manifests before the blobs that they use
		b.deleteAll(ctx, &b.registryClient, manifests), b.deleteAll(ctx, b.copies(), blobs), b.deleteAll(ctx, &b.registryClient, blobs))
	if b.REST != nil {
		err = errors.Join(err, Cleanup(ctx, Config{REST: b.REST, Namespace: b.namespace()}))
	}
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

// deleteAll deletes with all clients. It accepts a registry that supports no
// deletes.
func (b *registryBench) deleteAll(ctx context.Context, in *registryClient, paths []string) error {
	var next atomic.Int64
	t := b.workers(func(t *tally) {
		for {
			n := int(next.Add(1)) - 1
			if n >= len(paths) {
				return
			}
			t.count(0, 0, in.delete(ctx, paths[n]))
		}
	})
	return t.firstErr
}

func (c *registryClient) delete(ctx context.Context, rest string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodDelete, c.url(rest), "", nil, 0)
	if err != nil {
		return err
	}
	switch answer.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusBadRequest: // gone, or not supported
		return answer.Body.Close()
	}
	_, err = want(answer, http.StatusAccepted)
	return err
}
