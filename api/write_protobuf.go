package api

import (
	"bytes"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
)

// protobuf has the codecs of a kind for the format in which controllers write.
type protobuf struct {
	decoder runtime.Decoder
	encoder runtime.Encoder // writes the object as it is, with its apiVersion and kind
}

// newProtobuf returns nil for a kind without a protobuf form.
func newProtobuf(v *kind.Version) *protobuf {
	info, ok := runtime.SerializerInfoForMediaType(v.Wire.Serializer.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if _, typed := v.New().(interface{ Marshal() ([]byte, error) }); !ok || !typed || v.Wire.Custom {
		return nil
	}
	return &protobuf{decoder: v.Wire.Serializer.DecoderToVersion(info.Serializer, v.GVK.GroupVersion()), encoder: info.Serializer}
}

// writes reports whether answer has the format that the client wants.
func (j *fastWrites) writes(req *http.Request) bool {
	return wantsJSON(req) || j.proto != nil && wantsProtobuf(req)
}

// wantsProtobuf reports whether the client's first choice is protobuf.
func wantsProtobuf(req *http.Request) bool {
	accept, _, _ := strings.Cut(req.Header.Get("Accept"), ",")
	return strings.TrimSpace(accept) == runtime.ContentTypeProtobuf
}

// answer sends the result of a write. Without a decoded object it decodes the stored one if
// it has to.
func (j *fastWrites) answer(w http.ResponseWriter, req *http.Request, code int, result written) {
	if !wantsProtobuf(req) {
		j.r.writeObject(w, code, result.stored)
		return
	}
	obj, err := result.obj, error(nil)
	if obj == nil {
		obj, err = j.r.decode(result.stored)
	} else {
		obj, err = withVersion(obj, result.stored)
	}
	if err != nil {
		j.r.fail(w, req, err)
		return
	}
	obj.GetObjectKind().SetGroupVersionKind(j.r.v.GVK)
	j.answerProtobuf(w, req, code, obj)
}

// answerStatus sends the Status of a delete.
func (j *fastWrites) answerStatus(w http.ResponseWriter, req *http.Request, status *metav1.Status) {
	if !wantsProtobuf(req) {
		writeJSON(w, http.StatusOK, status)
		return
	}
	j.answerProtobuf(w, req, http.StatusOK, status)
}

func (j *fastWrites) answerProtobuf(w http.ResponseWriter, req *http.Request, code int, obj runtime.Object) {
	var buf bytes.Buffer
	if err := j.proto.encoder.Encode(obj, &buf); err != nil {
		j.r.fail(w, req, j.r.internalError(err))
		return
	}
	h := w.Header()
	h["Content-Type"] = protobufContentType
	h["Cache-Control"] = noCache
	w.WriteHeader(code)
	_, _ = w.Write(buf.Bytes())
}

var protobufContentType = []string{runtime.ContentTypeProtobuf}
