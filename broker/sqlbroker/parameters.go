package sqlbroker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/exeunt/exeunt/broker"
)

// encodeParameters keeps the types of numbers: a float64 always has a point or
// an exponent, an int64 never.
func encodeParameters(parameters broker.Parameters) (string, error) {
	out := make(map[string]any, len(parameters))
	for name, value := range parameters {
		out[name] = value
		if f, ok := value.(float64); ok {
			text, err := json.Marshal(f)
			if err != nil {
				return "", fmt.Errorf("parameter %s: %w", name, err)
			}
			if !bytes.ContainsAny(text, ".e") {
				text = append(text, ".0"...)
			}
			out[name] = json.RawMessage(text)
		}
	}
	text, err := json.Marshal(out)
	return string(text), err
}

func decodeParameters(text string) (broker.Parameters, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var parameters broker.Parameters
	if err := decoder.Decode(&parameters); err != nil {
		return nil, fmt.Errorf("decode parameters: %w", err)
	}
	for name, value := range parameters {
		number, ok := value.(json.Number)
		if !ok {
			continue
		}
		var err error
		if strings.ContainsAny(number.String(), ".eE") {
			parameters[name], err = number.Float64()
		} else {
			parameters[name], err = number.Int64()
		}
		if err != nil {
			return nil, fmt.Errorf("decode parameter %s: %w", name, err)
		}
	}
	return parameters, nil
}
