// Package otlp sends spans to an OpenTelemetry collector, by OTLP over HTTP. It promises
// that requests and reviews never wait for the collector: when it does not answer, spans
// are dropped. It does not know what is traced.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// closeTimeout limits how long Close waits for the collector.
const closeTimeout = 5 * time.Second

// Check refuses what is not the URL of a collector.
func Check(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.Join(fmt.Errorf("--otlp-endpoint %q: want a URL such as http://localhost:4318", endpoint), err)
	}
	return nil
}

// Exporter sends spans until it is closed.
type Exporter struct{ provider *sdktrace.TracerProvider }

// New makes an exporter. It does not connect: the first spans do. endpoint is the URL of
// a collector; without a path, /v1/traces is added.
func New(ctx context.Context, endpoint, version string, log *slog.Logger) (*Exporter, error) {
	if err := Check(endpoint); err != nil {
		return nil, err
	}
	u, _ := url.Parse(endpoint) // Check has parsed it
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("send traces to %s: %w", endpoint, err)
	}
	// The library reports failures of exports only here.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are not sent", "endpoint", endpoint, "error", err) }))
	host, _ := os.Hostname() // a resource without a host is valid
	about := resource.NewSchemaless(attribute.String("service.name", "exeunt"), attribute.String("service.version", version),
		attribute.String("host.name", host), attribute.Int("process.pid", os.Getpid()))
	return &Exporter{sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))}, nil
}

// Tracer returns what starts spans.
func (e *Exporter) Tracer() trace.Tracer { return e.provider.Tracer("github.com/exeunt/exeunt") }

// Close sends the spans that wait, and stops.
func (e *Exporter) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return e.provider.Shutdown(ctx)
}
