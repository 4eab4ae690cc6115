package builtin

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
)

// wire returns the codecs that all built-in kinds share.
var wire = sync.OnceValue(func() *kind.Wire {
	s := Scheme()
	return &kind.Wire{
		Serializer:      Codecs(),
		ParameterCodec:  runtime.NewParameterCodec(s),
		Creater:         s,
		Convertor:       s,
		UnsafeConvertor: runtime.UnsafeObjectConvertor(s),
		Defaulter:       s,
		Typer:           s,
		TypeConverter:   newTypeConverter(s),
	}
})
