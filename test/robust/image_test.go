package robust_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/exeunt/exeunt/test/harness"
)

// registry is one replica's, through its link.
type registry struct {
	address string
	auth    authn.Authenticator
}

// pusher pushes images through any replica, pulls them, mounts their blobs into a
// second repository, and deletes some of their tags.
type pusher struct {
	registries []registry
	rng        *rand.Rand

	mu           sync.Mutex
	pushed       map[string]v1.Hash // guarded by mu; acknowledged images by repository:tag
	tries        int                // guarded by mu
	acknowledged int                // guarded by mu
}

func (p *pusher) any() registry { return p.registries[p.rng.IntN(len(p.registries))] }

func (r registry) reference(at string) name.Tag {
	tag, err := name.NewTag(r.address+"/"+at, name.Insecure)
	if err != nil {
		panic(err) // a constant form
	}
	return tag
}

func (r registry) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithAuth(r.auth), remote.WithContext(ctx), remote.WithRetryBackoff(remote.Backoff{Steps: 1})}
}

func (p *pusher) run(ctx context.Context, t *testing.T) {
	for i := 0; ctx.Err() == nil; i++ {
		img, err := random.Image(40<<10, 2)
		if err != nil {
			t.Error(err)
			return
		}
		first, second := fmt.Sprintf("shop/one:v%d", i), fmt.Sprintf("shop/two:v%d", i)
		if !p.push(ctx, first, img) {
			continue
		}
		p.mount(ctx, t, first, second)
		if i%3 == 0 {
			p.untag(ctx, first)
		}
	}
}

func (p *pusher) push(ctx context.Context, at string, img v1.Image) bool {
	return p.write(ctx, p.any(), at, img)
}

func (p *pusher) write(ctx context.Context, r registry, at string, img v1.Image) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*answerWithin)
	defer cancel()
	digest, err := img.Digest()
	if err == nil {
		err = remote.Write(r.reference(at), img, r.options(ctx)...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	if err == nil {
		p.pushed[at] = digest
		p.acknowledged++
	}
	return err == nil
}

// mount pulls an acknowledged image and pushes it to a second repository, where the client
// mounts its blobs. Both may fail; what is read is what was pushed.
func (p *pusher) mount(ctx context.Context, t *testing.T, from, to string) {
	limited, cancel := context.WithTimeout(ctx, 2*answerWithin)
	defer cancel()
	r := p.any()
	img, err := remote.Image(r.reference(from), r.options(limited)...)
	if err != nil {
		return
	}
	p.mu.Lock()
	want := p.pushed[from]
	p.mu.Unlock()
	if got, err := img.Digest(); err == nil && got != want {
		t.Errorf("%s is %s; %s was pushed", from, got, want)
	}
	p.write(ctx, r, to, img)
}

// untag deletes a tag; whether it succeeds does not matter, so the image is not checked.
func (p *pusher) untag(ctx context.Context, at string) {
	p.mu.Lock()
	delete(p.pushed, at)
	p.mu.Unlock()
	r := p.any()
	_ = remote.Delete(r.reference(at), r.options(ctx)...)
}

// check pulls every acknowledged image byte by byte, through each replica in turn.
func (p *pusher) check(t *testing.T, s *harness.Server, storage string) {
	t.Helper()
	i := 0
	for at, want := range p.pushed {
		r := p.registries[i%len(p.registries)]
		i++
		img, err := remote.Image(r.reference(at), r.options(t.Context())...)
		if err == nil {
			err = validate.Image(img)
		}
		if err != nil {
			t.Errorf("the acknowledged image %s (%s): %v", at, want, err)
			continue
		}
		if got, _ := img.Digest(); got != want {
			t.Errorf("%s is %s; %s was pushed", at, got, want)
		}
	}
	t.Log(s.VerifyRegistry(t, "--registry-storage", storage))
}
