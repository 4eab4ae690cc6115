package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// RegistryConfig names the OCI registry and sets the load. The zero value of a
// field is its default.
type RegistryConfig struct {
	// URL of the registry, http://HOST:PORT. Required.
	URL string
	// Repository is the name of the repository for all pushes. Default
	// "bench/images".
	Repository string
	// REST is the API in whose namespaces repositories are. If it is set, the
	// run makes the namespace of the repository and removes it afterwards.
	REST *rest.Config
	// Password is sent with every request, by basic authentication. Empty means none.
	Password string
	// Keep leaves the pushed images in place.
	Keep bool
	// Clients is the number of concurrent requests. Default 8.
	Clients int
	// Images is the number of small images to push: a config and three new
	// layers of LayerSize each. Defaults 400 and 16 KiB.
	Images, LayerSize int
	// Tags is the number of tags in the list. Default 5,000.
	Tags int
	// Large is the size of a large layer. Default 1 GiB; negative: none.
	Large int64
	// Duration is how long each kind of read runs. Default 5 s.
	Duration time.Duration
	// Rounds is how often tags are listed; a large layer is pushed and pulled a
	// third as often. Default 10.
	Rounds int
	// Yardstick is a directory on the registry's disk, where the run also
	// hashes, writes and syncs large layers and sends them by sendfile, for
	// comparison. Empty means no comparison.
	Yardstick string
	// PID is the same as in Config.
	PID int
}

func (c RegistryConfig) withDefaults() RegistryConfig {
	fill := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	fill(&c.Clients, 8)
	fill(&c.Images, 400)
	fill(&c.LayerSize, 16<<10)
	fill(&c.Tags, 5_000)
	fill(&c.Rounds, 10)
	if c.Large == 0 {
		c.Large = 1 << 30
	}
	if c.Duration == 0 {
		c.Duration = 5 * time.Second
	}
	if c.Repository == "" {
		c.Repository = "bench/images"
	}
	return c
}

// RunRegistry pushes and reads images as clients do, and measures each kind of
// request. It works with any OCI registry.
func RunRegistry(ctx context.Context, config RegistryConfig) (result Result, err error) {
	b, err := openRegistryBench(config)
	if err != nil {
		return Result{}, err
	}
	defer b.http.CloseIdleConnections()
	if err := b.prepareNamespace(ctx); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, b.cleanup(ctx)) }()
	result = Result{Workload: "registry"}
	for _, step := range []struct {
		name string
		run  func(context.Context) (*tally, error)
	}{
		{"push small image", b.pushImages},
		{"manifest by tag", b.readManifests},
		{"blob HEAD", b.headBlobs},
		{"mount blob", b.mountBlobs},
		{fmt.Sprintf("list %d tags", b.Tags), b.listTags},
		{pushLarge, b.pushLarge},
		{pullLarge, b.pullLarge},
	} {
		if strings.HasSuffix(step.name, "large layer") && b.Large < 0 {
			continue
		}
		m, err := b.measure(ctx, step.name, step.run)
		if err != nil {
			return result, errors.Join(fmt.Errorf("%s: %w", step.name, err), b.yardstick.close())
		}
		b.yardstick.compare(&m)
		result.Measures = append(result.Measures, m)
	}
	result.Measures = append(result.Measures, b.yardstick.measures()...)
	return result, errors.Join(ctx.Err(), b.yardstick.close())
}

// registryBench is one run.
type registryBench struct {
	RegistryConfig
	registryClient
	images []image // the pushed images, for the reads
	large  string  // digest of the last large layer

	largeLayers []string // digests of all large layers

	started   time.Time
	yardstick yardstick
}

func openRegistryBench(config RegistryConfig) (*registryBench, error) {
	c := config.withDefaults()
	base, err := url.Parse(strings.TrimSuffix(c.URL, "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("bench: registry %q: want http://HOST:PORT", c.URL)
	}
	if c.Clients < 1 || c.Images < 1 || c.LayerSize < 1 || c.Tags < 1 || c.Rounds < 1 {
		return nil, fmt.Errorf("bench: clients, images, layer size, tags and rounds must be at least 1")
	}
	transport := &http.Transport{MaxIdleConnsPerHost: c.Clients, DisableCompression: true}
	return &registryBench{RegistryConfig: c, registryClient: registryClient{
		base: base, repository: c.Repository, password: c.Password, http: &http.Client{Transport: transport},
	}, yardstick: yardstick{dir: c.Yardstick}}, nil
}

// measure times one step. A step does its preparation before it resets the
// clock.
func (b *registryBench) measure(ctx context.Context, name string, run func(context.Context) (*tally, error)) (Measure, error) {
	m, err := startMeter(b.PID)
	if err != nil {
		return Measure{}, err
	}
	b.started = m.begin
	t, err := run(ctx)
	if err != nil {
		return Measure{}, err
	}
	elapsed := time.Since(b.started)
	if t.inTurn {
		elapsed = t.latency.sum
	}
	return m.stopAfter(name, t, elapsed)
}

// workers runs one worker per client.
func (b *registryBench) workers(work func(t *tally)) *tally {
	total := &tally{}
	var group sync.WaitGroup
	var mu sync.Mutex
	for range b.Clients {
		group.Go(func() {
			var t tally
			work(&t)
			mu.Lock()
			defer mu.Unlock()
			total.merge(&t)
		})
	}
	group.Wait()
	return total
}

// pushImages pushes every image once: HEAD and upload of each blob, then the
// manifest under a tag.
func (b *registryBench) pushImages(ctx context.Context) (*tally, error) {
	run := fmt.Sprintf("%x", time.Now().UnixNano())
	for i := range b.Images {
		b.images = append(b.images, newImage(run, i, b.LayerSize))
	}
	b.started = time.Now()
	var next atomic.Int64
	return b.workers(func(t *tally) {
		for ctx.Err() == nil {
			n := int(next.Add(1)) - 1
			if n >= len(b.images) {
				return
			}
			begin := time.Now()
			err := b.pushImage(ctx, &b.images[n])
			t.count(time.Since(begin), 0, err)
		}
	}), nil
}

func (b *registryBench) pushImage(ctx context.Context, img *image) error {
	for _, blob := range img.blobs {
		found, err := b.head(ctx, "blobs/"+blob.digest)
		if err == nil && !found {
			err = b.upload(ctx, blob)
		}
		if err != nil {
			return err
		}
	}
	return b.putManifest(ctx, img, img.tag)
}

// forDuration repeats a read with all clients.
func (b *registryBench) forDuration(ctx context.Context, read func(n int64) (int64, error)) *tally {
	end := time.Now().Add(b.Duration)
	var next atomic.Int64
	return b.workers(func(t *tally) {
		for ctx.Err() == nil && time.Now().Before(end) {
			begin := time.Now()
			bytes, err := read(next.Add(1))
			t.count(time.Since(begin), bytes, err)
		}
	})
}

func (b *registryBench) readManifests(ctx context.Context) (*tally, error) {
	return b.forDuration(ctx, func(n int64) (int64, error) {
		return b.get(ctx, "manifests/"+b.images[n%int64(len(b.images))].tag)
	}), nil
}

func (b *registryBench) headBlobs(ctx context.Context) (*tally, error) {
	return b.forDuration(ctx, func(n int64) (int64, error) {
		img := &b.images[n%int64(len(b.images))]
		found, err := b.head(ctx, "blobs/"+img.blobs[n%int64(len(img.blobs))].digest)
		if err == nil && !found {
			err = fmt.Errorf("a blob that was pushed is not there")
		}
		return 0, err
	}), nil
}

// mountBlobs mounts each blob of the images into a second repository, once.
func (b *registryBench) mountBlobs(ctx context.Context) (*tally, error) {
	var digests []string
	for _, img := range b.images {
		for _, blob := range img.blobs {
			digests = append(digests, blob.digest)
		}
	}
	to := b.copies()
	b.started = time.Now()
	var next atomic.Int64
	return b.workers(func(t *tally) {
		for ctx.Err() == nil {
			n := int(next.Add(1)) - 1
			if n >= len(digests) {
				return
			}
			begin := time.Now()
			err := to.mount(ctx, digests[n], b.repository)
			t.count(time.Since(begin), 0, err)
		}
	}), nil
}

// copies is a client of the repository that receives mounts.
func (b *registryBench) copies() *registryClient {
	c := b.registryClient
	c.repository += "-copies"
	return &c
}

// listTags gives one image many tags, and lists them in one response.
func (b *registryBench) listTags(ctx context.Context) (*tally, error) {
	var next atomic.Int64
	prepared := b.workers(func(t *tally) {
		for ctx.Err() == nil {
			n := next.Add(1)
			if n > int64(b.Tags) {
				return
			}
			t.count(0, 0, b.putManifest(ctx, &b.images[0], fmt.Sprintf("t%06d", n)))
		}
	})
	if prepared.firstErr != nil {
		return nil, prepared.firstErr
	}
	t := &tally{}
	b.started = time.Now()
	for range b.Rounds {
		begin := time.Now()
		bytes, err := b.get(ctx, fmt.Sprintf("tags/list?n=%d", b.Tags+b.Images))
		t.count(time.Since(begin), bytes, err)
	}
	return t, nil
}
