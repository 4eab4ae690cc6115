package openapi

import "github.com/munnerz/goautoneg"

// format is an encoding of a document.
type format struct {
	accept  string // the media type in the Accept header
	content string // the media type in the Content-Type header
	proto   bool
}

// Protobuf has two names: the older one with "@", which is not a valid media type, and
// the one with ".", which is sent.
var (
	formatsIndex = []format{jsonFormat}
	formatsV2    = []format{jsonFormat, protoFormat("v2", "@"), protoFormat("v2", ".")}
	formatsV3    = []format{jsonFormat, protoFormat("v3", "@"), protoFormat("v3", ".")}

	jsonFormat = format{accept: "application/json", content: "application/json"}
)

func protoFormat(version, separator string) format {
	name := "application/com.github.proto-openapi.spec." + version
	return format{accept: name + separator + "v1.0+protobuf", content: name + ".v1.0+protobuf", proto: true}
}

// negotiate picks the first format in the client's order that is available.
func negotiate(accept string, formats []format) (format, bool) {
	if accept == "" {
		return formats[0], true
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, f := range formats {
			switch clause.Type + "/" + clause.SubType {
			case f.accept, "application/*", "*/*":
				return f, true
			}
		}
	}
	return format{}, false
}
