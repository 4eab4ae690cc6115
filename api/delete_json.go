package api

import (
	"context"
	"net/http"

	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/apihelpers"

	"github.com/exeunt/exeunt/lifecycle"
)

// delete serves the DELETE of one object. It returns false, and has done nothing,
// if the library must serve the request.
func (j *fastWrites) delete(ctx context.Context, w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	options, ok := readDeleteOptions(req, body)
	if !ok {
		return false
	}
	markStep(w, stepDecoded)
	result, err := j.r.delete(ctx, j.r.key(ctx, info.Name), options, "")
	markStep(w, stepStored)
	if err != nil {
		j.r.fail(w, req, err)
		return true
	}
	j.r.recordDeletion(ctx, result, options)
	gone := result.Outcome == lifecycle.Remove
	if gone && !j.r.v.Kind.ReturnsDeleted {
		status := j.r.deletedStatus(result.Object)
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		j.answerStatus(w, req, status)
		return true
	}
	code := http.StatusOK
	// As in Kubernetes, 202 (the object still exists) is sent only to clients that
	// set the deprecated option orphanDependents.
	if orphan := options.OrphanDependents; !gone && orphan != nil && !*orphan {
		code = http.StatusAccepted
	}
	j.answer(w, req, code, written{stored: result.Object})
	return true
}

// readDeleteOptions reads the options from the body or, without a body, from the
// query. It returns false for options that the library would refuse.
func readDeleteOptions(req *http.Request, body []byte) (*metav1.DeleteOptions, bool) {
	options := &metav1.DeleteOptions{}
	switch {
	case len(body) > 0:
		kind := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
		decoder := deleteOptionsJSON
		if sendsType(req, runtime.ContentTypeProtobuf) {
			decoder = deleteOptionsProtobuf
		}
		obj, _, err := decoder.Decode(body, &kind, options)
		if err != nil || obj != options {
			return nil, false
		}
	case req.URL.RawQuery != "":
		if err := metainternalscheme.ParameterCodec.DecodeParameters(req.URL.Query(), metav1.SchemeGroupVersion, options); err != nil {
			return nil, false
		}
	}
	if options.IgnoreStoreReadErrorWithClusterBreakingPotential != nil || len(validation.ValidateDeleteOptions(options)) > 0 {
		return nil, false
	}
	return options, true
}

// Decoders of the DeleteOptions of every group.
var (
	deleteOptionsJSON     = deleteOptionsDecoder(runtime.ContentTypeJSON)
	deleteOptionsProtobuf = deleteOptionsDecoder(runtime.ContentTypeProtobuf)
)

func deleteOptionsDecoder(mediaType string) runtime.Decoder {
	codecs := apihelpers.GetMetaInternalVersionCodecs()
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType) // it has both
	return codecs.DecoderToVersion(info.Serializer, metav1.SchemeGroupVersion)
}
