// Package tracing follows one deletion through requests and reviews. A trace begins with a
// client's request and continues in the rows of the review queues, which have its
// traceparent (W3C Trace Context), so it survives restarts and moves between replicas.
// It promises that it costs nothing while tracing is off: no span is started, and no row
// has a traceparent. It does not know where spans are sent: see tracing/otlp.
package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

type tracerKey struct{}

// With returns a context whose tasks send their spans to t.
func With(ctx context.Context, t trace.Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, t)
}

// format reads and writes traceparents.
var format = propagation.TraceContext{}

// Traceparent returns the traceparent of the context's span; empty if there is none, or it
// is not sampled.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	format.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Continue starts a span below a traceparent of a row. Without a tracer in ctx it starts
// none, but the context still has the traceparent, for the rows that come after.
// end is never nil.
func Continue(ctx context.Context, traceparent, name string, attributes ...attribute.KeyValue) (_ context.Context, end func(error)) {
	if traceparent == "" {
		return ctx, func(error) {}
	}
	ctx = format.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	t, ok := ctx.Value(tracerKey{}).(trace.Tracer)
	if !ok {
		return ctx, func(error) {}
	}
	ctx, span := t.Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Handler traces the deletes, and the requests of clients that sent a sampled
// traceparent. Without a tracer it returns next.
func Handler(t trace.Tracer, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := format.Extract(req.Context(), propagation.HeaderCarrier(req.Header))
		incoming := trace.SpanContextFromContext(ctx)
		if !incoming.IsSampled() && (incoming.IsValid() || req.Method != http.MethodDelete) {
			next.ServeHTTP(w, req)
			return
		}
		ctx, span := t.Start(ctx, "HTTP "+req.Method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", req.Method), attribute.String("url.path", req.URL.Path)))
		defer span.End()
		seen := &statusWriter{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(seen, req.WithContext(ctx))
		span.SetAttributes(attribute.Int("http.response.status_code", seen.code))
		if id := w.Header().Get("Audit-Id"); id != "" {
			span.SetAttributes(attribute.String("exeunt.audit_id", id))
		}
		if seen.code >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	})
}

// statusWriter remembers the status code of an answer.
type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Flush implements what watch handlers look for.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
