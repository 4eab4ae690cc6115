package crossplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ServeFunction serves the composition function of XNode until ctx ends, and returns its
// address: it composes a Machine with the spec of the XR, and the XR is ready when the Machine
// is. It tells log what Crossplane observed.
func ServeFunction(ctx context.Context, config *tls.Config, log func(string)) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.ForceServerCodec(raw{}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "apiextensions.fn.proto.v1.FunctionRunnerService",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "RunFunction", Handler: runFunction(log)}},
	}, nil)
	go func() { _ = server.Serve(listener) }() // returns when it is stopped
	context.AfterFunc(ctx, server.Stop)
	return listener.Addr().String(), nil
}

// raw is a codec that leaves messages encoded: the function needs four of Crossplane's fields, and
// no code generated from its definitions.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) ([]byte, error) {
	data, ok := message.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("marshal a %T", message)
	}
	return *data, nil
}

func (raw) Unmarshal(data []byte, message any) error {
	target, ok := message.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshal into a %T", message)
	}
	*target = append([]byte(nil), data...)
	return nil
}

func runFunction(log func(string)) grpc.MethodHandler {
	return func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var request []byte
		if err := decode(&request); err != nil {
			return nil, err
		}
		response, err := compose(request, log)
		return &response, err
	}
}

// The numbers of the fields: https://github.com/crossplane/crossplane, proto/fn/v1.
const (
	requestObserved = 2 // State
	responseDesired = 2 // State
	stateComposite  = 1 // Resource
	stateResources  = 2 // map from string to Resource
	resourceObject  = 1 // Struct
	resourceReady   = 3 // Ready: 1 is true, 2 is false
	entryKey        = 1
	entryValue      = 2
)

// compose answers a RunFunctionRequest with a RunFunctionResponse.
func compose(request []byte, log func(string)) ([]byte, error) {
	observed, err := field(request, requestObserved)
	if err != nil {
		return nil, err
	}
	composite, err := field(observed, stateComposite)
	if err != nil {
		return nil, err
	}
	xr, err := object(composite)
	if err != nil {
		return nil, err
	}
	ready, observation := uint64(2), "no machine"
	if entry, err := field(observed, stateResources); err == nil { // the one that this function composes
		resource, err := field(entry, entryValue)
		if err != nil {
			return nil, err
		}
		machine, err := object(resource)
		if err != nil {
			return nil, err
		}
		if isReady(machine) {
			ready = 1
		}
		observation = fmt.Sprintf("the machine at %s, ready: %t", machine.GetResourceVersion(), ready == 1)
	}
	log(fmt.Sprintf("the function sees the XR %s at %s, %s", xr.GetName(), xr.GetResourceVersion(), observation))
	spec, _, _ := unstructured.NestedMap(xr.Object, "spec")
	delete(spec, "crossplane") // Crossplane's own fields
	machine, err := structpb.NewStruct(map[string]any{
		"apiVersion": "infra.example.org/v1", "kind": "Machine", "metadata": map[string]any{"name": xr.GetName()}, "spec": spec,
	})
	if err != nil {
		return nil, err
	}
	data, err := proto.Marshal(machine)
	if err != nil {
		return nil, err
	}
	resource := message(nil, resourceObject, data)
	resource = protowire.AppendVarint(protowire.AppendTag(resource, resourceReady, protowire.VarintType), ready)
	entry := message(message(nil, entryKey, []byte("machine")), entryValue, resource)
	return message(nil, responseDesired, message(nil, stateResources, entry)), nil
}

// object decodes the Struct of a Resource.
func object(resource []byte) (*unstructured.Unstructured, error) {
	data, err := field(resource, resourceObject)
	if err != nil {
		return nil, err
	}
	var s structpb.Struct
	if err := proto.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: s.AsMap()}, nil
}

func message(to []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), content)
}

var errNoField = errors.New("the message lacks a field")

// field returns the content of the first field with a number, which is a message or a string.
func field(data []byte, want protowire.Number) ([]byte, error) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		data = data[n:]
		if number == want && kind == protowire.BytesType {
			content, n := protowire.ConsumeBytes(data)
			return content, protowire.ParseError(min(n, 0))
		}
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return nil, protowire.ParseError(n)
		}
		data = data[n:]
	}
	return nil, fmt.Errorf("%w %d", errNoField, want)
}
