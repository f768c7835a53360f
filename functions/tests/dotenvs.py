"""Dotenv files that choose the route of the Gemini API by key, and others that do not."""

CHOOSING = [
    "MODEL_PROVIDER=gemini",
    "MODEL_PROVIDER=gemini\n",
    "MODEL_PROVIDER = gemini  \n",
    "MODEL_PROVIDER='gemini'",
    'MODEL_PROVIDER="gemini" # by key',
    "MODEL_PROVIDER=gemini# by key",
    "export MODEL_PROVIDER=gemini",
    "SERVICE_NAME=x\r\nMODEL_PROVIDER=gemini\r\nSEARCH_RESULT_LIMIT=7\r\n",
    "\ufeffMODEL_PROVIDER=gemini",
    "MODEL_PROVIDER=vertex\nMODEL_PROVIDER=gemini",
    "#MODEL_PROVIDER=vertex\n  MODEL_PROVIDER=gemini\n#MODEL_PROVIDER=local",
]
OTHERS = [
    "",
    "MODEL_PROVIDER=vertex",
    "MODEL_PROVIDER=local",
    "MODEL_PROVIDER=",
    "MODEL_PROVIDER=\ngemini",
    "MODEL_PROVIDER=Gemini",
    "MODEL_PROVIDER=#gemini",
    "#MODEL_PROVIDER=gemini",
    "  # MODEL_PROVIDER=gemini",
    "MY_MODEL_PROVIDER=gemini",
    "MODEL_PROVIDER_2=gemini",
    "SERVICE_NAME=MODEL_PROVIDER=gemini",
    "MODEL_PROVIDER=gemini\nMODEL_PROVIDER=vertex",
    "MODEL_PROVIDER='gemini",
]
