#include "ggml.h"
